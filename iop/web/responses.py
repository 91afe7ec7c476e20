"""What a handler answers with: a whole response, or a stream that is pumped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
from twisted.internet.defer import Deferred

JSON = "application/json"
EVENT_STREAM = "text/event-stream; charset=utf-8"

encode = msgspec.json.Encoder().encode


class Response:
    """A response whose body is at hand."""

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(self, status: int = 200, body: bytes = b"", content_type: str = JSON,
                 headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.body = body
        self.content_type = content_type
        self.headers = dict(headers or {})


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(status, encode(value), JSON, headers)


class StreamSource(Protocol):
    """What a stream is pumped from; a cursor with a formatter, mostly. The reader pulls, the source never pushes."""

    ended: bool
    """Nothing will come any more: what take() gave last was the end."""

    heartbeat: bytes
    """What to write after 15 quiet seconds; nothing when it is empty."""

    def take(self, limit_bytes: int) -> list[bytes] | Deferred[list[bytes]]:
        """Pieces to write now, about `limit_bytes` at most; empty when there is nothing."""

    def notify(self, callback: Callable[[], object]) -> None:
        """Have `callback()` called when there may be something to take."""

    def close(self) -> None:
        """The reader is gone, or has taken the end (`ended`)."""


class StreamResponse:
    """A response that goes out as it arises. The source is closed in any case, also when the client leaves."""

    __slots__ = ("content_type", "headers", "source", "status")

    def __init__(self, source: StreamSource, status: int = 200, content_type: str = EVENT_STREAM,
                 headers: Mapping[str, str] | None = None) -> None:
        self.source = source
        self.status = status
        self.content_type = content_type
        self.headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **(headers or {})}
