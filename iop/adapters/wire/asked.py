"""What a backend is asked, who reads its reply, and what it is asked instead when it refuses. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from iop.errors import UpstreamError
from iop.proto.run_pb2 import RuntimeEvent, Usage

JSON = "application/json"


class Reader(Protocol):
    """Makes events of a reply's bytes; raises UpstreamError for what it cannot read or what is not whole.

    `done` is the backend's own word that all has come. `fault` is what a reply amounts to behind the events that were
    returned with it. `heard` grows when a reply says something: comments, pings and empty chunks do not count. `told_as`:
    the content type to tell of where the backend's own would mislead, else empty.
    """

    media_type: bytes
    told_as: bytes
    done: bool
    fault: UpstreamError | None
    heard: int
    finish_reason: str
    usage: Usage | None

    def takes(self, media_type: bytes) -> bool: ...
    def feed(self, data: bytes) -> list[RuntimeEvent]: ...
    def finish(self) -> list[RuntimeEvent]: ...


class BaseReader:
    """What readers share: the attributes of a Reader, and one media type."""

    media_type = b""
    told_as = b""

    def __init__(self) -> None:
        self.done = False
        self.fault: UpstreamError | None = None
        self.heard = 0
        self.finish_reason = ""
        self.usage: Usage | None = None

    def takes(self, media_type: bytes) -> bool:
        return media_type == self.media_type


def _nothing_else(status: int, body: bytes) -> None:
    return None


def _nothing() -> None:
    return None


class Asked(NamedTuple):
    """`path` is below the URL of the target. `api`: the one that the reply belongs to, where it is not the run's own.

    `otherwise(status, body)` is what to ask after that refusal, or None; it may raise an IOPError, which ends the run.
    `answered()` is called when a reply of 200 has begun. `whole_s`: how long the head of a reply may take that comes with
    its end; 0: as the target says of all.
    """

    path: str
    body: bytes
    readers: tuple[Reader, ...]
    headers: dict[str, str] = {}
    content_type: str = JSON
    api: str = ""
    warnings: tuple[str, ...] = ()
    otherwise: Callable[[int, bytes], Asked | None] = _nothing_else
    answered: Callable[[], None] = _nothing
    whole_s: float = 0.0
