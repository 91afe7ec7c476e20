"""Anthropic's face: /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from iop.edge.models.affinity import chat_prefix
from iop.edge.models.asking import RUN_HEADERS, Asking
from iop.edge.models.count_tokens import CANNOT_COUNT, CountBody
from iop.edge.models.messages import MessageBody, MessagesStream
from iop.errors import InvalidRequest, NotFound
from iop.modelapis import COUNT_TOKENS, MESSAGES
from iop.proto import run_pb2
from iop.records import RunRecord
from iop.web.errors import ANTHROPIC, error_response
from iop.web.request import Request
from iop.web.responses import Response, StreamResponse
from iop.web.route import RUN_ERRORS, Route

# What of the request's head is the backend's business: it goes along unchanged, and stays in the run's record.
FORWARDED = ("anthropic-version", "anthropic-beta", "x-claude-code-session-id", "x-claude-code-agent-id",
             "x-claude-code-parent-agent-id", "x-claude-code-request-class")
_NO_SUCH_API = (404, 405, 501)
_HEADER = re.compile(r"[\x20-\x7e]*")
_QUERY = re.compile(r"[A-Za-z0-9._~=&%+-]{0,200}")
_BILLING = "x-anthropic-billing-header"      # the line of Claude Code's system prompt that differs between conversations


class MessagesRequest(msgspec.Struct, frozen=True):
    """What IOP itself reads of a body; the whole body travels to the backend, fields it does not know included."""

    model: str
    messages: list[Any]
    stream: bool | None = None
    system: Any = None
    stop_sequences: Any = None

    @property
    def stops(self) -> tuple[str, ...]:
        told = self.stop_sequences
        return tuple(stop for stop in told if isinstance(stop, str)) if isinstance(told, list) else ()

    def prefix(self) -> Iterator[Any]:
        """The beginning of the prompt, without what differs in each request."""
        for block in self.system if isinstance(self.system, list) else [self.system]:
            text = block.get("text") if isinstance(block, dict) else block
            if isinstance(text, str) and not text.startswith(_BILLING):
                yield text
        yield from chat_prefix(self.messages)


class MessagesRoutes:
    """The model API in Anthropic's dialect."""

    def __init__(self, asking: Asking, body_limit: int) -> None:
        self._asking = asking
        self._body_limit = body_limit

    def routes(self) -> list[Route]:
        return [
            self._route("/v1/messages", self.create, "Anthropic's Messages API, streaming or not", True),
            self._route("/v1/messages/count_tokens", self.count, "Count the tokens of a prompt", False),
        ]

    def _route(self, path: str, handler: Any, summary: str, streams: bool) -> Route:
        return Route("POST", path, "models", handler, summary, body=MessagesRequest, query=None, body_limit=self._body_limit,
                     dialect=ANTHROPIC, streams=streams, errors=RUN_ERRORS,
                     headers=(*RUN_HEADERS, *FORWARDED))

    async def create(self, request: Request) -> Response | StreamResponse:
        asked = request.json(MessagesRequest)
        run = self._run(request, asked, MESSAGES)

        def stream(record: RunRecord) -> MessagesStream:
            return MessagesStream(record.run_id, asked.model, asked.stops)

        def body(record: RunRecord) -> MessageBody:
            return MessageBody(record.run_id, asked.model, asked.stops)
        return await self._asking.answered(request, run, asked.stream, stream, body)

    async def count(self, request: Request) -> Response:
        asked = request.json(MessagesRequest)
        run = self._run(request, asked, COUNT_TOKENS)
        if self._asking.is_program(asked.model):
            raise NotFound(f"The model {asked.model[:100]!r} is a program, which cannot count tokens.")
        answer = await self._asking.whole(request, run, lambda record: CountBody())
        if answer.status in _NO_SUCH_API:
            return error_response(NotFound(CANNOT_COUNT), ANTHROPIC, answer.headers, request.request_id)
        return answer

    def _run(self, request: Request, asked: MessagesRequest, api: str) -> run_pb2.RunRequest:
        run = self._asking.run_request(request, asked.model, api, prefix=asked.prefix())
        for name in FORWARDED:
            values = [value.decode("latin-1") for value in request.headers.getRawHeaders(name.encode()) or ()]
            if values:
                run.headers[name] = _checked(_HEADER, ",".join(values), f"The header {name}")
        run.query = _checked(_QUERY, request.query_string, "The query")
        return run


def _checked(allowed: re.Pattern[str], value: str, what: str) -> str:
    if not allowed.fullmatch(value):
        raise InvalidRequest(f"{what} has characters that are not passed on.")
    return value
