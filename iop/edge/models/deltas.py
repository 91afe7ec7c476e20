"""What a run says, read from whatever it says it in: chat chunks, whole chat bodies, or plain events of programs. Pure.

A teller of some model API asks `native` first: then the backend spoke that API itself, and its chunks pass unread.
"""

from __future__ import annotations

from typing import Any

import msgspec

from iop.edge.models.ending import Ending, dialect_of_api
from iop.edge.models.foreign_json import decode_any, read_as
from iop.events import as_dict, json_encode
from iop.fitting import fitted
from iop.modelapis import CHAT, COMPLETIONS
from iop.proto import run_pb2
from iop.proto.run_pb2 import CHANNEL_REASONING, CHANNEL_STDERR, RuntimeEvent

_NOTES = frozenset(("tool_call", "tool_result", "permission_request", "status", "artifact", "truncated"))


class Text(msgspec.Struct, frozen=True):
    text: str


class Reasoning(msgspec.Struct, frozen=True):
    text: str


class CallBegin(msgspec.Struct, frozen=True):
    """The model calls a tool. `index` counts the calls of the answer, from 0."""

    index: int
    call_id: str
    name: str


class CallPiece(msgspec.Struct, frozen=True):
    """More of a call's arguments: a piece of JSON text."""

    index: int
    arguments: str


class Note(msgspec.Struct, frozen=True):
    """What a program did beside its output: an event as the management API shows it. `item["type"]` says which."""

    item: dict[str, object]


Delta = Text | Reasoning | CallBegin | CallPiece | Note


# --- the chunks of chat/completions and of completions; a field of another type than expected is read as if absent

class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    content: Any = None
    reasoning_content: str | None = None     # llama.cpp, vLLM to 0.11, DeepSeek
    reasoning: str | None = None             # vLLM from 0.12, OpenRouter
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Message | None = None
    message: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []


_decode = msgspec.json.Decoder(_Chunk).decode


def api_of(raw: bytes, own: str) -> str:
    """The model API that a chunk belongs to, by its looks, where nobody told."""
    if b'"choices"' not in raw:
        return own
    return COMPLETIONS if own == COMPLETIONS and b'"text_completion"' in raw else CHAT


def _choices(raw: bytes) -> list[_Choice]:
    chunk = read_as(_decode, raw)
    if chunk is None:
        chunk = fitted(read_as(decode_any, raw), _Chunk)
    return chunk.choices


def _add_text(text: Any, reasoning: bool, found: list[Delta]) -> None:
    if isinstance(text, list):           # parts, as some backends send them
        text = "".join(str(part.get("text") or "") for part in text if isinstance(part, dict))
    if text and isinstance(text, str):
        found.append(Reasoning(text) if reasoning else Text(text))


class Deltas:
    """What the entries of one run say, for a teller of `api`."""

    def __init__(self, api: str) -> None:
        self.api = api
        self.native = False          # the chunks belong to `api`; not known before the run has started
        self.whole = b""             # a native reply in one piece: its last one
        self.ending = Ending(dialect_of_api(api))
        self._replied = False        # a model's backend has, and its node told in which API
        self._settled = False        # output has come: another backend cannot take over any more
        self._calls: dict[int, str] = {}     # the ids of calls, by their index
        self._run_id = ""

    def read(self, entry: Any) -> list[Delta]:
        """What an entry says; nothing where its chunks are `native`. How the run ends is told to `ending`."""
        told = entry.batch.events
        if self.native and self._settled:    # only an ending, and a gap, which stands in front, count
            if entry.ends or told[0].HasField("gap"):
                self.ending.read((told[0], told[-1]))
            return []
        self._run_id = entry.batch.run_id
        self.ending.read(told)
        found: list[Delta] = []
        for offset, event in enumerate(told):
            kind = event.WhichOneof("kind")
            if kind == "output":
                self._output(event, found)
            elif kind == "started":
                self._started(event.started)
            elif kind in _NOTES:
                found.append(Note(as_dict(entry.attempt, entry.first_seq + offset, event)))
        return [] if self.native else found

    def _started(self, started: run_pb2.Started) -> None:
        self._replied = bool(started.response)       # of a program there is none
        self.native = self._replied and (self.ending.api or self.api) == self.api

    def _output(self, event: RuntimeEvent, found: list[Delta]) -> None:
        raw = event.raw
        if not self._settled:
            self._settled = True
            if raw and not self._replied:
                self.native = api_of(raw, self.api) == self.api
        if self.native:
            self.whole = raw
            return
        if event.channel == CHANNEL_STDERR:
            return
        before, choices = len(found), _choices(raw)
        for choice in choices:
            if choice.index == 0:            # of several answers the first is told
                self._choice(choice, found)
        if len(found) == before and all(choice.index == 0 for choice in choices):
            # a program's; or in a form that is not known: what the node read of it counts
            _add_text(event.output, event.channel == CHANNEL_REASONING, found)

    def _choice(self, choice: _Choice, found: list[Delta]) -> None:
        message = choice.delta or choice.message
        if message is not None:
            _add_text(message.reasoning_content or message.reasoning, True, found)
            _add_text(message.content or message.refusal, False, found)
            for place, call in enumerate(message.tool_calls or ()):
                self._call(call, place, found)
        _add_text(choice.text, False, found)
        if choice.finish_reason:
            self.ending.finish = choice.finish_reason

    def _call(self, call: _Call, place: int, found: list[Delta]) -> None:
        """A fragment of a call. Some backends give every call the index 0, and an id of its own; some give no ids."""
        index = call.index if call.index is not None else place
        if index in self._calls and call.id and call.id != self._calls[index]:
            index = next((known for known, call_id in self._calls.items() if call_id == call.id), len(self._calls))
        function = call.function or _Function()
        if index not in self._calls:
            call_id = self._calls[index] = call.id or f"call_{self._run_id}_{index}"
            self.ending.calls += 1
            found.append(CallBegin(index, call_id, function.name or ""))
        arguments = function.arguments
        if arguments:
            found.append(CallPiece(index, arguments if isinstance(arguments, str) else json_encode(arguments).decode()))
