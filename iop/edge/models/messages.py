"""A run told in Anthropic's Messages API. Pure: entries in, bytes out.

::

    message_start, (content_block_start, content_block_delta ..., content_block_stop) ..., message_delta, message_stop

Where the backend spoke this API itself, its events pass as they came. Either way a failure is an `error` event and nothing
after it: no stop_reason and no message_stop is ever invented.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import msgspec

from iop.edge.models.blocks import Blocks, Content
from iop.edge.models.deltas import Deltas, Note
from iop.edge.models.foreign_json import read_as
from iop.edge.models.stop_reason import StopReason
from iop.events import json_encode
from iop.modelapis import MESSAGES
from iop.proto.run_pb2 import CHANNEL_STDERR, Usage
from iop.web.responses import EVENT_STREAM, JSON
from iop.web.sse import data_frame

_TYPE = re.compile(rb'\s*\{\s*"type"\s*:\s*"([a-z_]+)"')


def event_frame(event: dict[str, Any]) -> bytes:
    """One event as its clients read it, who go by the name."""
    return b"event: %b\n%b" % (event["type"].encode(), data_frame(json_encode(event)))


PING = event_frame({"type": "ping"})


class _Typed(msgspec.Struct):
    type: str = "message"


_typed = msgspec.json.Decoder(_Typed).decode


def _raw_frame(raw: bytes) -> bytes:
    """A backend's own event. Its name is its type, which nearly always stands first."""
    found = _TYPE.match(raw)
    name = found[1] if found is not None else (read_as(_typed, raw) or _Typed()).type.encode()
    return b"event: %b\n%b" % (name, data_frame(raw))


def native_frames(entry: Any) -> bytes:
    """The backend's own events of a batch; made once for all readers."""
    made = entry.dialects.get(MESSAGES)
    if made is None:
        made = entry.dialects[MESSAGES] = b"".join([_raw_frame(event.raw) for event in entry.batch.events if event.raw])
    return made


def usage_json(usage: Usage | None) -> dict[str, int]:
    """Zeros where nobody counted: clients add these up, and need them to be there."""
    if usage is None:
        return {"input_tokens": 0, "output_tokens": 0}
    told = {"input_tokens": max(0, usage.prompt_tokens - usage.cached_tokens), "output_tokens": usage.completion_tokens}
    return told | ({"cache_read_input_tokens": usage.cached_tokens} if usage.cached_tokens else {})


def head(run_id: str, model: str) -> dict[str, Any]:
    """What every answer begins with."""
    return {"id": f"msg_{run_id}", "type": "message", "role": "assistant", "model": model}


class MessagesStream:
    """A streaming answer."""

    media_type = EVENT_STREAM
    heartbeat = PING

    def __init__(self, run_id: str, model: str, stop_sequences: Collection[str] = ()) -> None:
        self._deltas = Deltas(MESSAGES)
        self.ending = self._deltas.ending
        self._head = head(run_id, model)
        self._blocks = Blocks()
        self._stop = StopReason(stop_sequences)
        self._has_begun = False
        self._held: list[bytes] = []     # what happened before the first output: no reason to send a status of 200

    def write(self, entry: Any) -> bytes:
        """What a client is told of a batch; empty when there is nothing in it for it."""
        deltas = self._deltas.read(entry)
        if self._deltas.native:
            return native_frames(entry)
        self._stop.read(entry)
        told: list[bytes] = []
        for delta in deltas:
            if isinstance(delta, Note):
                told.append(self._noted(delta.item))
            else:
                told.append(self._begun())
                told += map(event_frame, self._blocks.add(delta))
        return b"".join(told)

    def end(self) -> bytes:
        """What follows the last entry."""
        if not self.ending.completed:
            return b"event: error\n" + data_frame(json_encode(self.ending.error_json()))
        if self._deltas.native:
            return b""
        last = [*self._blocks.finish(),
                {"type": "message_delta", "delta": self._stop.fields(self.ending), "usage": usage_json(self.ending.tokens)},
                {"type": "message_stop"}]
        return self._begun() + b"".join(map(event_frame, last))

    def _noted(self, item: dict[str, object]) -> bytes:
        """What a program did; clients pass over pings, whatever is in them."""
        note = event_frame({"type": "ping", "x_iop": item})
        if item["type"] == "status" and not self._has_begun:
            self._held.append(note)
            return b""
        return self._begun() + note

    def _begun(self) -> bytes:
        """The first event, and what was held for it; empty once they are told."""
        if self._has_begun:
            return b""
        self._has_begun = True
        usage = usage_json(self.ending.tokens) | {"output_tokens": 0}
        message = self._head | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        return event_frame({"type": "message_start", "message": message}) + b"".join(self._held)


class MessageBody:
    """An answer in one piece."""

    media_type = JSON

    def __init__(self, run_id: str, model: str, stop_sequences: Collection[str] = ()) -> None:
        self._deltas = Deltas(MESSAGES)
        self.ending = self._deltas.ending
        self.size = 0
        self._head = head(run_id, model)
        self._content = Content()
        self._stop = StopReason(stop_sequences)
        self._raw = b""
        self._notes: list[dict[str, object]] = []

    def read(self, entry: Any) -> None:
        deltas = self._deltas.read(entry)
        self._stop.read(entry)
        for delta in deltas:
            if isinstance(delta, Note):
                self._notes.append(delta.item)
            else:
                self._content.add(delta)
        for event in entry.batch.events:
            if event.HasField("output") and event.channel != CHANNEL_STDERR:
                self.size += len(event.output) + len(event.raw)
                if self._deltas.native:
                    self._raw = event.raw

    def body(self) -> bytes:
        """The body of a run that has completed."""
        if self._raw:
            return self._raw
        message = self._head | {"content": self._content.whole(), **self._stop.fields(self.ending),
                                "usage": usage_json(self.ending.tokens)}
        return json_encode(message | ({"x_iop": self._notes} if self._notes else {}))
