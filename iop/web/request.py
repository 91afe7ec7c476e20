"""One request as a handler sees it."""

from __future__ import annotations

import re
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from iop import randomness
from iop.errors import InvalidRequest
from iop.headers import Headers
from iop.proto import run_pb2
from iop.web import strictjson
from iop.web.auth import NOBODY, Principal
from iop.web.errors import ANTHROPIC, MANAGEMENT, OLLAMA, OPENAI

T = TypeVar("T")

_REQUEST_ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]{7,63}")
_FACES = {MANAGEMENT: "http", OPENAI: "openai", ANTHROPIC: "anthropic", OLLAMA: "ollama"}
_DIALECTS = (("/v1/messages", ANTHROPIC), ("/v1/", OPENAI), ("/api/v1/", MANAGEMENT), ("/api/", OLLAMA))


class Request:
    """Head, body and who asks. The body is whole before a handler sees it."""

    __slots__ = ("args", "body", "dialect", "headers", "method", "path", "principal", "query_string", "request_id")

    def __init__(self, method: str, path: str, query_string: str, headers: Headers) -> None:
        self.method = method
        self.path = path
        self.query_string = query_string
        self.headers = headers
        self.args: dict[str, str] = {}           # the names in the route's path
        self.principal: Principal = NOBODY
        self.body = b""
        self.dialect = dialect_of(path)          # until the route says it
        self.request_id = request_id_of(headers)

    def header(self, name: str) -> str | None:
        """The header's last value; None when it is absent."""
        return self.headers.last(name)

    @property
    def source(self) -> run_pb2.Source:
        """Who asks, as it stands in events, history and audit."""
        return run_pb2.Source(face=_FACES[self.dialect], principal=self.principal.name, request_id=self.request_id)

    @property
    def wants_stream(self) -> bool:
        return "text/event-stream" in (self.header("accept") or "")

    def json(self, type_: type[T]) -> T:
        """The body as `type_`. Raises InvalidRequest."""
        return strictjson.convert(strictjson.loads(self.body), type_)

    def query(self, type_: type[T]) -> T:
        """The query as `type_`, whose fields are strings and numbers. Raises InvalidRequest."""
        return strictjson.convert(query_values(self.query_string), type_, strict=False)


def query_values(text: str) -> dict[str, Any]:
    """Names and values of a query; each name once. Raises InvalidRequest."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=64, errors="strict")
    except ValueError:
        raise InvalidRequest("The query cannot be read.") from None
    values = dict(pairs)
    if len(values) != len(pairs):
        raise InvalidRequest("A name stands twice in the query.")
    return values


def dialect_of(path: str) -> str:
    """The dialect in which errors are told where no route is known."""
    return next((dialect for start, dialect in _DIALECTS if path.startswith(start)), MANAGEMENT)


def request_id_of(headers: Headers) -> str:
    """The client's own id when it is a harmless one, so that its log and ours meet; else a new one."""
    given = headers.getRawHeaders(b"x-request-id")
    if given and _REQUEST_ID.fullmatch(given[-1]):
        return given[-1].decode("ascii")
    return "req_" + randomness.take(12).hex()
