"""A run told as chat/completions. Pure: entries in, bytes out.

Where the backend spoke this API itself, its chunks pass as they came (`raw`); one word of them is mended: a backend that says
"stop" behind tool calls would have its client's agent stop there. For programs and other backends the chunks are made here.
Either way a failure is an error object and nothing after it: no finish_reason and no [DONE] is ever invented.
"""

from __future__ import annotations

import re
from typing import Any

from iop.edge.dialects import openai_raw
from iop.edge.models.deltas import CallBegin, CallPiece, Delta, Deltas, Note, Reasoning, Text
from iop.events import json_encode
from iop.modelapis import CHAT
from iop.web.responses import EVENT_STREAM, JSON
from iop.web.sse import COMMENT, data_frame

DONE = b"data: [DONE]\n\n"
# In text these are escaped, so that only the fields themselves are found.
_CALLED = re.compile(rb'"tool_calls"\s*:\s*\[\s*\{')
_STOPPED = re.compile(rb'("finish_reason"\s*:\s*)"stop"')


def empty_delta(run_id: str, created_s: int, model: str) -> bytes:
    """A heartbeat for clients that do not count comments as a sign of life."""
    return data_frame(json_encode({**_head(run_id, created_s, model), "choices": [
        {"index": 0, "delta": {}, "logprobs": None, "finish_reason": None}]}))


def _head(run_id: str, created_s: int, model: str) -> dict[str, object]:
    return {"id": f"chatcmpl-{run_id}", "object": "chat.completion.chunk", "created": created_s, "model": model}


class ChatStream:
    """A streaming answer: one data line a chunk."""

    media_type = EVENT_STREAM

    def __init__(self, run_id: str, created_s: int, model: str, with_usage: bool, heartbeat: bytes = COMMENT) -> None:
        self._deltas = Deltas(CHAT)
        self.ending = self._deltas.ending
        self.heartbeat = heartbeat
        self._head = _head(run_id, created_s, model)
        self._with_usage = with_usage
        self._role_told = False
        self._called = False             # among chunks that pass
        self._held: list[bytes] = []     # what happened before the first output: no reason to send a status of 200

    def write(self, entry: Any) -> bytes:
        """What a client is told of a batch; empty when there is nothing in it for it."""
        deltas = self._deltas.read(entry)
        if self._deltas.native:
            return self._passed(openai_raw(entry, self._with_usage))
        return b"".join([self._told(delta) for delta in deltas])

    def _passed(self, raw: bytes) -> bytes:
        if not self._called:
            self._called = b'"tool_calls"' in raw and _CALLED.search(raw) is not None
        return _STOPPED.sub(rb'\1"tool_calls"', raw) if self._called else raw

    def end(self) -> bytes:
        """What follows the last entry."""
        if not self.ending.completed:
            return data_frame(json_encode(self.ending.error_json()))
        return DONE if self._deltas.native else self._begun() + self._finish() + DONE

    def _told(self, delta: Delta) -> bytes:
        match delta:
            case Text(text):
                return self._begun() + self._chunk({"content": text})
            case Reasoning(text):
                return self._begun() + self._chunk({"reasoning_content": text})
            case CallBegin(index, call_id, name):
                return self._begun() + self._chunk({"tool_calls": [{
                    "index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}]})
            case CallPiece(index, arguments):
                return self._chunk({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})
            case Note(item):
                return self._noted(item)

    def _noted(self, item: dict[str, object]) -> bytes:
        chunk = self._chunk({}, x_iop=item)
        if item["type"] == "status" and not self._role_told:
            self._held.append(chunk)
            return b""
        return self._begun() + chunk

    def _begun(self) -> bytes:
        """The first chunk, and what was held for it; empty once they are told."""
        if self._role_told:
            return b""
        self._role_told = True
        return self._chunk({"role": "assistant", "content": ""}) + b"".join(self._held)

    def _finish(self) -> bytes:
        last = self._chunk({}, finish_reason=self.ending.finish_reason)
        if not self._with_usage:
            return last
        return last + data_frame(json_encode({**self._head, "choices": [], "usage": self.ending.usage_json()}))

    def _chunk(self, delta: dict[str, object], finish_reason: str | None = None, **more: object) -> bytes:
        chunk: dict[str, object] = {**self._head, "choices": [
            {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}], **more}
        if self._with_usage:
            chunk["usage"] = None
        return data_frame(json_encode(chunk))


class ChatBody:
    """An answer in one piece."""

    media_type = JSON

    def __init__(self, run_id: str, created_s: int, model: str) -> None:
        self._deltas = Deltas(CHAT)
        self.ending = self._deltas.ending
        self._head = {"id": f"chatcmpl-{run_id}", "object": "chat.completion", "created": created_s, "model": model}
        self.size = 0
        self._kept = 0
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._notes: list[dict[str, object]] = []

    def read(self, entry: Any) -> None:
        for delta in self._deltas.read(entry):
            self._keep(delta)
        self.size = self._kept + len(self._deltas.whole)

    def _keep(self, delta: Delta) -> None:
        match delta:
            case Text(text):
                self._text.append(text)
                self._kept += len(text)
            case Reasoning(text):
                self._reasoning.append(text)
                self._kept += len(text)
            case CallBegin(index, call_id, name):
                self._calls[index] = {"id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
            case CallPiece(index, arguments):
                self._calls[index]["function"]["arguments"] += arguments
                self._kept += len(arguments)
            case Note(item):
                self._notes.append(item)

    def body(self) -> bytes:
        """The body of a run that has completed."""
        if self._deltas.native:
            whole = self._deltas.whole
            return _STOPPED.sub(rb'\1"tool_calls"', whole) if whole.count(b'"finish_reason"') == 1 and _CALLED.search(
                whole) else whole
        text = "".join(self._text)
        message: dict[str, object] = {"role": "assistant", "content": text if text or not self._calls else None}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = list(self._calls.values())
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.ending.finish_reason}
        told = {**self._head, "choices": [choice], "usage": self.ending.usage_json()}
        return json_encode(told | ({"x_iop": self._notes} if self._notes else {}))
