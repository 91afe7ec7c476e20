"""The events of a backend that speaks the Responses API itself, made ours where they must be. Pure.

Two things are changed, in the bytes, and nothing else: the response's id, which becomes the run's, so that it can be fetched,
cancelled and continued; and a sequence_number is put in front where the backend counts none (llama.cpp).
"""

from __future__ import annotations

import re

import msgspec

from iop.edge.models.foreign_json import read_as
from iop.web.sse import data_frame

_ENDS = frozenset(("response.completed", "response.incomplete"))
_TYPE = re.compile(r"[a-z0-9_.]+")


class _Head(msgspec.Struct):
    id: str = ""


class _Event(msgspec.Struct):
    type: str = ""
    sequence_number: int | None = None
    response: _Head | None = None
    object: str = ""                     # "response" where this is no event but a whole answer
    id: str = ""


class _Holder(msgspec.Struct):
    response: msgspec.Raw


_event = msgspec.json.Decoder(_Event).decode


class NativeEvents:
    """Takes a backend's events in order."""

    def __init__(self, response_id: str) -> None:
        self._id = response_id
        self._last = b""                 # the event, or the body, that holds the whole answer
        self.next_number = 0
        self.ended = False               # that has come

    def add(self, raw: bytes) -> tuple[int, bytes]:
        """The sequence_number and the frame of an event."""
        event = read_as(_event, raw) or _Event()     # in another shape than ours it passes as it came
        own = event.response.id if event.response is not None else event.id if event.object == "response" else ""
        if own:
            raw = raw.replace(b'"%b"' % own.encode(), b'"%b"' % self._id.encode(), 1)
        if event.type in _ENDS or event.object == "response":
            self._last, self.ended = raw, True
        if event.object == "response" and not event.type:    # it did not stream
            raw = b'{"type":"response.completed","response":%b}' % raw
            event.type = "response.completed"
        number = event.sequence_number
        if number is None:
            number = self.next_number
            raw = _numbered(raw, number)
        self.next_number = number + 1
        line = b"event: %b\n" % event.type.encode() if _TYPE.fullmatch(event.type) else b""
        return number, line + data_frame(raw)

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return len(self._last)

    def response(self) -> bytes:
        """The whole answer, once it has ended."""
        if _event(self._last).object == "response":
            return self._last
        return bytes(msgspec.json.decode(self._last, type=_Holder).response)


def _numbered(raw: bytes, number: int) -> bytes:
    """With a number in front, unless it is no object or says something of its own there."""
    if not raw.startswith(b'{"') or b'"sequence_number"' in raw:
        return raw
    return b'{"sequence_number":%d,' % number + raw[1:]
