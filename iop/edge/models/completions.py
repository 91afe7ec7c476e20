"""A run told as the older completions API: text behind a prompt, nothing else. Pure."""

from __future__ import annotations

from typing import Any

from iop.edge.dialects import openai_raw
from iop.edge.models.chat import DONE
from iop.edge.models.deltas import Delta, Deltas, Text
from iop.edge.models.ending import Ending
from iop.events import json_encode
from iop.modelapis import COMPLETIONS
from iop.web.responses import EVENT_STREAM, JSON
from iop.web.sse import COMMENT, data_frame


def _head(run_id: str, created_s: int, model: str) -> dict[str, object]:
    return {"id": f"cmpl-{run_id}", "object": "text_completion", "created": created_s, "model": model}


def _choice(text: str, finish_reason: str | None) -> list[dict[str, object]]:
    return [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}]


def empty_piece(run_id: str, created_s: int, model: str) -> bytes:
    """A heartbeat for clients that do not count comments as a sign of life."""
    return data_frame(json_encode({**_head(run_id, created_s, model), "choices": _choice("", None)}))


def _finish_reason(ending: Ending) -> str:
    """This API knows of no tools."""
    return "stop" if ending.calls else ending.finish_reason


def _text(deltas: list[Delta]) -> str:
    return "".join([delta.text for delta in deltas if isinstance(delta, Text)])


class CompletionStream:
    """A streaming answer: one data line a chunk."""

    media_type = EVENT_STREAM

    def __init__(self, run_id: str, created_s: int, model: str, with_usage: bool, heartbeat: bytes = COMMENT) -> None:
        self._deltas = Deltas(COMPLETIONS)
        self.ending = self._deltas.ending
        self.heartbeat = heartbeat
        self._head = _head(run_id, created_s, model)
        self._with_usage = with_usage

    def write(self, entry: Any) -> bytes:
        deltas = self._deltas.read(entry)
        if self._deltas.native:
            return openai_raw(entry, self._with_usage)
        text = _text(deltas)
        return self._chunk(_choice(text, None)) if text else b""

    def end(self) -> bytes:
        if not self.ending.completed:
            return data_frame(json_encode(self.ending.error_json()))
        if self._deltas.native:
            return DONE
        last = self._chunk(_choice("", _finish_reason(self.ending)))
        return last + (self._chunk([], self.ending.usage_json()) if self._with_usage else b"") + DONE

    def _chunk(self, choices: list[dict[str, object]], usage: dict[str, object] | None = None) -> bytes:
        counted = {"usage": usage} if self._with_usage else {}
        return data_frame(json_encode({**self._head, "choices": choices, **counted}))


class CompletionBody:
    """An answer in one piece."""

    media_type = JSON

    def __init__(self, run_id: str, created_s: int, model: str) -> None:
        self._deltas = Deltas(COMPLETIONS)
        self.ending = self._deltas.ending
        self._head = _head(run_id, created_s, model)
        self._text: list[str] = []
        self.size = 0

    def read(self, entry: Any) -> None:
        text = _text(self._deltas.read(entry))
        self._text.append(text)
        self.size += len(text) + len(self._deltas.whole)

    def body(self) -> bytes:
        return self._deltas.whole or json_encode({
            **self._head, "choices": _choice("".join(self._text), _finish_reason(self.ending)),
            "usage": self.ending.usage_json()})
