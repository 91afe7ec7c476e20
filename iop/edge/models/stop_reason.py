"""Why a model stopped, as Anthropic's Messages API tells it. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from iop.edge.models.ending import Ending
from iop.edge.models.foreign_json import read_as

# By chat's finish_reason.
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "function_call": "tool_use",
                 "content_filter": "refusal"}


class _Choice(msgspec.Struct):
    stop_reason: Any = None          # vLLM: the text or token that ended it
    matched_stop: Any = None         # SGLang's name for it


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []


_chunk = msgspec.json.Decoder(_Chunk).decode


class StopReason:
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

    def fields(self, ending: Ending) -> dict[str, str | None]:
        """As a message has them. Of a run that has completed."""
        reason = ending.finish_reason
        if self._matched is not None and reason == "stop":
            return {"stop_reason": "stop_sequence", "stop_sequence": self._matched}
        return {"stop_reason": _STOP_REASONS.get(reason, "end_turn"), "stop_sequence": None}
