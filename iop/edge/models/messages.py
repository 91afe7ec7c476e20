"""A run told in Anthropic's Messages API (model-apis.md section 6). Pure: entries in, bytes out.

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
from iop.edge.models.ending import Ending
from iop.edge.models.foreign_json import read_as
from iop.errors import NotFound
from iop.events import json_encode
from iop.proto.run_pb2 import CHANNEL_STDERR, Usage
from iop.web.responses import EVENT_STREAM, JSON
from iop.web.sse import data_frame

MESSAGES, COUNT_TOKENS = "messages", "messages/count_tokens"
CANNOT_COUNT = "The backend of this model cannot count tokens."
_TYPE = re.compile(rb'\s*\{\s*"type"\s*:\s*"([a-z_]+)"')
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "function_call": "tool_use",
                 "content_filter": "refusal"}


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


# --- why it stopped

class _Choice(msgspec.Struct):
    stop_reason: Any = None          # vLLM: the text or token that ended it
    matched_stop: Any = None         # SGLang's name for it


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []


_chunk = msgspec.json.Decoder(_Chunk).decode


class Stop:
    """Why a model stopped: its own word, and which of the client's texts it was, where the backend says that."""

    def __init__(self, sequences: Collection[str]) -> None:
        self._sequences = sequences
        self._matched: str | None = None

    def read(self, entry: Any) -> None:
        if not self._sequences:
            return
        for event in entry.batch.events:
            if b'"stop_reason"' in event.raw or b'"matched_stop"' in event.raw:
                self._look_at(event.raw)

    def _look_at(self, raw: bytes) -> None:
        chunk = read_as(_chunk, raw) or _Chunk()
        for word in (choice.stop_reason or choice.matched_stop for choice in chunk.choices[:1]):
            if isinstance(word, str) and word in self._sequences:
                self._matched = word

    def told(self, ending: Ending) -> dict[str, str | None]:
        reason = ending.finish_reason
        if self._matched is not None and reason == "stop":
            return {"stop_reason": "stop_sequence", "stop_sequence": self._matched}
        return {"stop_reason": _STOP_REASONS.get(reason, "end_turn"), "stop_sequence": None}


# --- the tellers

class MessagesStream:
    """A streaming answer."""

    media_type = EVENT_STREAM
    heartbeat = PING

    def __init__(self, run_id: str, model: str, stop_sequences: Collection[str] = ()) -> None:
        self._deltas = Deltas(MESSAGES)
        self.ending = self._deltas.ending
        self._head = head(run_id, model)
        self._blocks = Blocks()
        self._stop = Stop(stop_sequences)
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
                {"type": "message_delta", "delta": self._stop.told(self.ending), "usage": usage_json(self.ending.tokens)},
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
        self._stop = Stop(stop_sequences)
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
        message = self._head | {"content": self._content.whole(), **self._stop.told(self.ending),
                                "usage": usage_json(self.ending.tokens)}
        return json_encode(message | ({"x_iop": self._notes} if self._notes else {}))


class CountBody:
    """The answer to messages/count_tokens: that of a backend which can count (ADR 0023)."""

    media_type = JSON

    def __init__(self) -> None:
        self._deltas = Deltas(COUNT_TOKENS)
        self.ending = self._deltas.ending
        self.size = 0
        self._raw = b""

    def read(self, entry: Any) -> None:
        self._deltas.read(entry)
        if self._deltas.native:
            self._raw += b"".join([event.raw for event in entry.batch.events])
            self.size = len(self._raw)

    def body(self) -> bytes:
        """Raises NotFound where nothing was counted."""
        if not self._raw:
            raise NotFound(CANNOT_COUNT)
        return self._raw


def head(run_id: str, model: str) -> dict[str, Any]:
    """What every answer begins with."""
    return {"id": f"msg_{run_id}", "type": "message", "role": "assistant", "model": model}
