"""The content blocks of an answer in Anthropic's Messages API, out of what a model says. Pure.

A stream tells one block after the other: start, deltas, stop. Calls that a backend tells interleaved are put in a row: who
comes while another is not whole waits.
"""

from __future__ import annotations

from typing import Any

import msgspec

from iop.edge.models.deltas import CallBegin, CallPiece, Delta, Reasoning, Text
from iop.edge.models.foreign_json import read_as, read_object

TEXT, THINKING, CALL = "text", "thinking", "tool_use"
_DELTAS = {TEXT: ("text_delta", "text"), THINKING: ("thinking_delta", "thinking"), CALL: ("input_json_delta", "partial_json")}

_raw = msgspec.json.Decoder(msgspec.Raw).decode      # reads no further than to see where it ends


class _Block:
    def __init__(self, head: dict[str, Any]) -> None:
        self.head = head
        self.kind: str = head["type"]
        self.told: list[str] = []        # of a call, to know when it is whole
        self.waiting: list[str] = []     # not told yet

    @property
    def is_whole(self) -> bool:
        """Nothing more will belong to it."""
        return self.kind != CALL or _is_json("".join(self.told))


def _is_json(text: str) -> bool:
    if not text.rstrip().endswith("}"):
        return False
    return read_as(_raw, text) is not None


def block_of(delta: Delta) -> dict[str, Any] | None:
    """The empty block that a delta begins, where there is none for it yet."""
    match delta:
        case Text():
            return {"type": TEXT, "text": ""}
        case Reasoning():
            return {"type": THINKING, "thinking": "", "signature": ""}
        case CallBegin(_, call_id, name):
            return {"type": CALL, "id": call_id, "name": name, "input": {}}
    return None


class Blocks:
    """Events of a stream's content, as dicts."""

    def __init__(self) -> None:
        self._open: _Block | None = None
        self._row: list[_Block] = []     # those behind it
        self._calls: dict[int, _Block] = {}
        self._index = -1                 # of the open one

    def add(self, delta: Delta) -> list[dict[str, Any]]:
        match delta:
            case Text(text) | Reasoning(text):
                self._growing(delta).waiting.append(text)
            case CallBegin(index):
                self._calls[index] = self._begun(delta)
            case CallPiece(index, arguments):
                self._calls[index].waiting.append(arguments)
        return self._events()

    def finish(self) -> list[dict[str, Any]]:
        """What is left to tell, once the model has nothing more to say."""
        events = self._events()
        while self._open is not None:
            events.append(self._stopped())
            events += self._events()
        return events

    def _growing(self, delta: Text | Reasoning) -> _Block:
        """The last block, where it is of this kind; else a new one."""
        last = self._row[-1] if self._row else self._open
        kind = TEXT if isinstance(delta, Text) else THINKING
        return last if last is not None and last.kind == kind else self._begun(delta)

    def _begun(self, delta: Delta) -> _Block:
        block = _Block(block_of(delta) or {"type": TEXT, "text": ""})
        self._row.append(block)
        return block

    def _events(self) -> list[dict[str, Any]]:
        """Events until a block is open that may go on."""
        events: list[dict[str, Any]] = []
        while True:
            if self._open is None:
                if not self._row:
                    return events
                self._open = self._row.pop(0)
                self._index += 1
                events.append({"type": "content_block_start", "index": self._index, "content_block": self._open.head})
            events += self._pieces(self._open)
            if not self._row or not self._open.is_whole:
                return events
            events.append(self._stopped())

    def _pieces(self, block: _Block) -> list[dict[str, Any]]:
        kind, field = _DELTAS[block.kind]
        pieces, block.waiting = block.waiting, []
        if block.kind == CALL:
            block.told += pieces
        return [{"type": "content_block_delta", "index": self._index, "delta": {"type": kind, field: piece}}
                for piece in pieces]

    def _stopped(self) -> dict[str, Any]:
        self._open = None
        return {"type": "content_block_stop", "index": self._index}


class Content:
    """The blocks of an answer in one piece."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._calls: dict[int, _Block] = {}

    def add(self, delta: Delta) -> None:
        match delta:
            case Text(text) | Reasoning(text):
                kind = TEXT if isinstance(delta, Text) else THINKING
                if not self._blocks or self._blocks[-1].kind != kind:
                    self._begin(delta)
                self._blocks[-1].waiting.append(text)
            case CallBegin(index):
                self._calls[index] = self._begin(delta)
            case CallPiece(index, arguments):
                self._calls[index].waiting.append(arguments)

    def _begin(self, delta: Delta) -> _Block:
        block = _Block(block_of(delta) or {})
        self._blocks.append(block)
        return block

    def whole(self) -> list[dict[str, Any]]:
        return [block.head | _filled(block.kind, "".join(block.waiting)) for block in self._blocks]


def _filled(kind: str, told: str) -> dict[str, Any]:
    return {"input": input_of(told)} if kind == CALL else {kind: told}


def input_of(arguments: str) -> Any:
    """A call's input, which must be an object. What a model has spoiled is wrapped as Anthropic's page on fine-grained tool
    streaming (2026-11) says, so that the client's tool can tell the model.
    """
    if not arguments.strip():
        return {}
    value = read_object(arguments)
    return {"INVALID_JSON": arguments} if value is None else value
