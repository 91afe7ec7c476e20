"""A run told as the Responses API: a stream of events, or one object. Pure: entries in, bytes out.

::

    created -> in_progress -> items (response_items.py) -> completed | incomplete | failed

Where the backend spoke this API itself its events pass as they came, but for what makes them one API with the rest: the
response's id is ours, so that it can be found again, and events without a sequence_number get one (native_response.py).
"""

from __future__ import annotations

from typing import Any

import msgspec

from iop.edge.models.deltas import CallPiece, Delta, Deltas, Note, Reasoning, Text
from iop.edge.models.foreign_json import read_as
from iop.edge.models.native_response import NativeEvents
from iop.edge.models.response_items import Event, ResponseItems
from iop.edge.models.response_object import ResponseObject, status_of
from iop.events import json_encode
from iop.modelapis import RESPONSES
from iop.records import RunRecord
from iop.toolnames import read_tools
from iop.web.responses import EVENT_STREAM, JSON
from iop.web.sse import COMMENT

# How a backend's own stream begins: passed over where a heartbeat has begun it already.
_BEGINNINGS = (b"event: response.created\n", b"event: response.queued\n", b"event: response.in_progress\n")
_REASONING_TOKENS = b'"reasoning_tokens"'


class _Details(msgspec.Struct):
    reasoning_tokens: int = 0


class _Usage(msgspec.Struct):
    completion_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct):
    usage: _Usage | None = None


_chunk = msgspec.json.Decoder(_Chunk).decode


class _ResponseTeller:
    """What stream and object share: what a run says, as items of a response."""

    def __init__(self, record: RunRecord, asked: dict[str, Any], model: str) -> None:
        """`asked` is the request's body as its client sent it, `model` the name it asked for."""
        reasoning = asked.get("reasoning")
        self._deltas = Deltas(RESPONSES)
        self.ending = self._deltas.ending
        self._object = ResponseObject(record, asked, model)
        self._items = ResponseItems(record.run_id, read_tools(asked)[0],
                                    isinstance(reasoning, dict) and bool(reasoning.get("summary")))
        self._native = NativeEvents(self._object.id)
        self._reasoning_tokens = 0
        self._at_us = 0              # of the last event

    def _read(self, entry: Any) -> list[Any]:
        deltas = self._deltas.read(entry)
        events = entry.batch.events
        self._at_us = events[-1].at_us
        if not self._deltas.native:
            for event in events:
                if _REASONING_TOKENS in event.raw:
                    self._reasoning_tokens = _counted(event.raw) or self._reasoning_tokens
        return deltas

    def _ended(self, **more: Any) -> msgspec.Raw:
        return self._object.ended(self.ending, self._items.output(), self._reasoning_tokens, self._at_us, **more)


def _counted(raw: bytes) -> int:
    chunk = read_as(_chunk, raw)
    usage = chunk.usage if chunk is not None else None
    details = usage.completion_tokens_details if usage is not None else None
    return details.reasoning_tokens if details is not None else 0


class ResponseStream(_ResponseTeller):
    """A streaming answer. With `after`, only the events of a higher sequence_number are told."""

    media_type = EVENT_STREAM
    heartbeat = COMMENT

    def __init__(self, record: RunRecord, asked: dict[str, Any], model: str, after: int = -1) -> None:
        super().__init__(record, asked, model)
        self._after = after
        self.next_number = 0         # the sequence_number of the next event
        self.has_gap = False         # history has lost what stood here: the numbers behind it are not those told before
        self._begun = False
        self._held: list[Event] = []     # what happened before the first output: no reason to send a status of 200

    def write(self, entry: Any) -> bytes:
        deltas = self._read(entry)
        self.has_gap = self.has_gap or entry.batch.events[0].HasField("gap")
        if self._deltas.native:
            return self._passed(entry)
        events: list[Event] = []
        for delta in deltas:
            if isinstance(delta, Note) and delta.item["type"] == "status" and not self._begun:
                self._held += self._items.add(delta)
            else:
                events += self._begin() + self._items.add(delta)
        return self._frames(events)

    def beat(self) -> bytes:
        """A sign of life. Codex counts events, and no comments: the first is the beginning itself, those after it say nothing
        and have no number of their own."""
        if not self._begun and not self.next_number:
            self._begun = True
            if beginning := self._frames(self._beginning()):
                return beginning
        return b'event: keepalive\ndata: {"type":"keepalive","sequence_number":%d}\n\n' % (self.next_number - 1)

    def _passed(self, entry: Any) -> bytes:
        told = []
        for event in entry.batch.events:
            if event.raw:
                number, frame = self._native.add(event.raw)
                if number > self._after and not (self._begun and frame.startswith(_BEGINNINGS)):
                    told.append(frame)
        self.next_number = self._native.next_number
        return b"".join(told)

    def end(self) -> bytes:
        if self._native.ended and self.ending.completed:
            return b""
        status = status_of(self.ending)
        events = self._begin() + self._items.finish(status)
        kind = status if status in ("completed", "incomplete") else "failed"
        return self._frames([*events, {"type": f"response.{kind}", "response": self._ended()}])

    def _begin(self) -> list[Event]:
        """The first events, and what was held for them; empty once they are told."""
        if self._native.next_number:
            return []
        first = [] if self._begun else self._beginning()
        self._begun = True
        held, self._held = self._held, []
        return first + held

    def _beginning(self) -> list[Event]:
        response = self._object.as_json("in_progress", [])
        return [{"type": "response.created", "response": response}, {"type": "response.in_progress", "response": response}]

    def _frames(self, events: list[Event]) -> bytes:
        """Each event as a frame with its number, but for those that the reader has seen."""
        first, self.next_number = self.next_number, self.next_number + len(events)
        return b"".join([
            b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json_encode(
                {"type": event["type"], "sequence_number": number} | event))
            for number, event in enumerate(events, first) if number > self._after])


def _length(delta: Delta) -> int:
    match delta:
        case Text(text) | Reasoning(text):
            return len(text)
        case CallPiece(_, arguments):
            return len(arguments)
    return 0


class ResponseBody(_ResponseTeller):
    """An answer in one piece."""

    media_type = JSON

    def __init__(self, record: RunRecord, asked: dict[str, Any], model: str) -> None:
        super().__init__(record, asked, model)
        self.size = 0

    def read(self, entry: Any) -> None:
        for delta in self._read(entry):
            self._items.add(delta)
            self.size += _length(delta)
        if self._deltas.native:
            for event in entry.batch.events:
                if event.raw:
                    self._native.add(event.raw)
            self.size = self._native.size

    def body(self) -> bytes:
        """The response object of a run that has ended, however it did."""
        if self._native.ended and self.ending.completed:
            return self._native.response()
        self._items.finish(status_of(self.ending))
        return bytes(self._ended(**({"x_iop": self._items.notes} if self._items.notes else {})))

    def output(self) -> list[Any]:
        """Its items, for a request that goes on from here."""
        output = msgspec.json.decode(self.body()).get("output")
        return output if isinstance(output, list) else []
