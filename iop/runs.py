"""What a run is: ids, states, endings. Pure; shared by every role.

::

    queued --> placed --> running --> completed | failed | cancelled | unknown
       |          |          ^  |
       |          |          |  v
       |          |      disconnected      (the node's link is down)
       |          |
       +----------+--> failed | cancelled  (an ending the edge itself makes)
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from iop import randomness
from iop.errors import InvalidRequest
from iop.proto import run_pb2

ENDINGS = ("completed", "failed", "cancelled", "unknown")
OPEN_STATES = ("queued", "placed", "running", "disconnected")
STATES = OPEN_STATES + ENDINGS

_RUN_ID = re.compile(r"[0-9a-f]{32}")
_EVENT_ID = re.compile(r"([0-9]{1,9})\.([0-9]{1,18})")


def new_run_id(now_s: float | None = None) -> str:
    """A UUID version 7 (RFC 9562) as 32 hex digits: sorts by creation, 74 random bits behind the milliseconds."""
    milliseconds = int((time.time() if now_s is None else now_s) * 1000)
    value = (milliseconds << 80) | int.from_bytes(randomness.take(10), "big")
    value = (value & ~(0xF << 76)) | (0x7 << 76)
    value = (value & ~(0x3 << 62)) | (0x2 << 62)
    return f"{value:032x}"


def is_run_id(text: str) -> bool:
    return _RUN_ID.fullmatch(text) is not None


class EventId(NamedTuple):
    """A reader's place in a run: the last event it has seen. ``EventId(0, 0)`` is before the first."""

    attempt: int
    seq: int

    @classmethod
    def parse(cls, text: str) -> EventId:
        """Read ``ATTEMPT.SEQ``; empty text is the start. Raises InvalidRequest."""
        if not text:
            return START
        match = _EVENT_ID.fullmatch(text)
        if match is None:
            raise InvalidRequest(f"{text[:40]!r} is not an event id; it looks like 1.7 (attempt, dot, number).")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.attempt}.{self.seq}"


START = EventId(0, 0)


@dataclass(frozen=True, slots=True)
class ExecutionSpec:
    """What the node's router makes of a RunRequest: all that an adapter needs to carry it out.

    `settings` is the target's own settings as its adapter validated them (the adapter's type).
    """

    run_id: str
    attempt: int
    adapter: str
    target: str
    settings: object
    request: run_pb2.RunRequest
    limits: run_pb2.Limits
    marker: Mapping[str, str] = field(default_factory=dict)  # environment that marks the run's processes

    @property
    def may_repeat(self) -> bool:
        """Whether a backend may be asked again where most likely nobody has read the first request."""
        return self.request.retry_safe or not self.request.HasField("retry_safe")
