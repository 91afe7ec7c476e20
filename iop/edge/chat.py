"""A run told as chat/completions (model-apis.md sections 1 to 3). Pure: entries in, bytes out.

Where the backend spoke this API itself, its chunks pass as they came (`raw`). For programs and other backends the chunks are
made here. Either way a failure is an error object and nothing after it: no finish_reason and no [DONE] is ever invented.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from iop.edge.dialects import openai_raw, speaks_chat
from iop.errors import HistoryGap
from iop.events import ENDING_KINDS, as_dict, json_encode, outcome_of, usage_dict
from iop.proto import run_pb2
from iop.proto.run_pb2 import CHANNEL_REASONING, CHANNEL_STDERR, Outcome, RuntimeEvent
from iop.web.errors import openai_error, status_of
from iop.web.sse import data_frame

DONE = b"data: [DONE]\n\n"
# What backends answer when it is the node's key that they refuse: nothing that their client could mend.
_NOT_THE_CLIENTS = frozenset((401, 403, 407))
_TOO_LONG = "context_length_exceeded"
# llama.cpp: "exceeds the available context size"; vLLM and SGLang: "maximum context length", "model's context length".
_TELLS_TOO_LONG = re.compile(r"exceed_context_size|\bcontext (?:size|length|window)\b", re.IGNORECASE)
_TOOLS = frozenset(("tool_call", "tool_result", "permission_request", "status", "artifact", "truncated"))


class Ending:
    """How the run ended, once its entries have told."""

    def __init__(self) -> None:
        self.kind = ""
        self.outcome = Outcome()
        self.started = False
        self.usage: run_pb2.Usage | None = None
        self._gap = False

    def read(self, told: Iterable[RuntimeEvent]) -> None:
        for event in told:
            kind = event.WhichOneof("kind")
            if kind == "started":
                self.started = True
            elif kind == "usage":
                self.usage = event.usage
            elif kind == "gap":
                self._gap = True
            elif kind in ENDING_KINDS:
                self.kind, self.outcome = kind, getattr(event, kind)
                if self._gap and self.completed:     # an answer with a hole in it is none
                    self.kind, self.outcome = "failed", outcome_of(HistoryGap("Part of the answer was lost by the history."))

    @property
    def completed(self) -> bool:
        return self.kind == "completed"

    def usage_json(self) -> dict[str, object] | None:
        usage = self.outcome.usage if self.outcome.HasField("usage") else self.usage
        if usage is None:
            return None
        told = usage_dict(usage)
        return {name: told[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}

    def error_json(self) -> dict[str, object]:
        """The error object of an ending that is none of completed: the backend's own when it sent one."""
        code = self.outcome.code or self.kind or "internal_error"
        message = self.outcome.message or f"The run ended as {self.kind or 'unknown'}."
        ours = openai_error(_TOO_LONG if _TELLS_TOO_LONG.search(message) else code, message, self.status)
        own = None if self.outcome.upstream_status in _NOT_THE_CLIENTS else _own_error(self.outcome.upstream_body)
        return ours if own is None else {"error": ours["error"] | own}

    @property
    def status(self) -> int:
        """The HTTP status of an ending that is none of completed, when nothing was written yet."""
        upstream = self.outcome.upstream_status
        return upstream if upstream >= 400 and upstream not in _NOT_THE_CLIENTS else status_of(self.outcome.code or self.kind)


def _own_error(body: bytes) -> dict[str, Any] | None:
    """The fields of a backend's error that has a message; None when it has none. Those which clients compare are strings
    or null: llama.cpp and vLLM say `"code": 400`, which is the status again."""
    try:
        value = msgspec.json.decode(body) if body else None
    except msgspec.DecodeError:
        return None
    error = value.get("error", value) if isinstance(value, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return None
    told = {name: error[name] for name in ("type", "param", "code") if isinstance(error.get(name), str)}
    if "code" not in told:
        told["code"] = _TOO_LONG if _TELLS_TOO_LONG.search(f"{told.get('type')} {error['message']}") else told.get("type")
    return {name: item for name, item in error.items() if name not in ("type", "param", "code")} | told


class ChatStream:
    """A streaming answer: one data line a chunk."""

    def __init__(self, run_id: str, created_s: int, model: str, with_usage: bool) -> None:
        self.ending = Ending()
        self._head = {"id": f"chatcmpl-{run_id}", "object": "chat.completion.chunk", "created": created_s, "model": model}
        self._with_usage = with_usage
        self._raw: bool | None = None        # not known before the first output
        self._role_told = False

    def write(self, entry: Any) -> bytes:
        """What a client is told of a batch; empty when there is nothing in it for it."""
        told = entry.batch.events
        if self._raw:                    # its chunks pass unread; only its ending, and a gap, which stands in front, count
            if entry.ends or told[0].HasField("gap"):
                self.ending.read((told[0], told[-1]))
            return openai_raw(entry, self._with_usage)
        self.ending.read(told)
        if self._raw is None:
            first = next((event for event in told if event.HasField("output")), None)
            self._raw = speaks_chat(first) if first is not None else None
            if self._raw:
                return openai_raw(entry, self._with_usage)
        return b"".join([self._made(entry.attempt, entry.first_seq + index, event) for index, event in enumerate(told)])

    def end(self) -> bytes:
        """What follows the last entry."""
        if not self.ending.completed:
            return data_frame(json_encode(self.ending.error_json()))
        return DONE if self._raw else self._role() + self._finish() + DONE

    def _made(self, attempt: int, seq: int, event: RuntimeEvent) -> bytes:
        kind = event.WhichOneof("kind")
        if kind == "output" and event.channel != CHANNEL_STDERR and event.output:
            field = "reasoning_content" if event.channel == CHANNEL_REASONING else "content"
            return self._role() + self._chunk({field: event.output})
        if kind in _TOOLS:
            return self._role() + self._chunk({}, x_iop=as_dict(attempt, seq, event))
        return b""

    def _role(self) -> bytes:
        if self._role_told:
            return b""
        self._role_told = True
        return self._chunk({"role": "assistant", "content": ""})

    def _finish(self) -> bytes:
        last = self._chunk({}, finish_reason=self.ending.outcome.finish_reason or "stop")
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

    def __init__(self, run_id: str, created_s: int, model: str) -> None:
        self.ending = Ending()
        self._head = {"id": f"chatcmpl-{run_id}", "object": "chat.completion", "created": created_s, "model": model}
        self.size = 0                    # about, of what is kept: characters of text, bytes of a backend's own body
        self._raw = b""
        self._text: list[str] = []
        self._reasoning: list[str] = []

    def read(self, entry: Any) -> None:
        self.ending.read(entry.batch.events)
        for event in entry.batch.events:
            if not event.HasField("output") or event.channel == CHANNEL_STDERR:
                continue
            self.size += len(event.output) + len(event.raw)
            if speaks_chat(event):
                self._raw = event.raw
            elif event.channel == CHANNEL_REASONING:
                self._reasoning.append(event.output)
            else:
                self._text.append(event.output)

    def body(self) -> bytes:
        """The body of a run that has completed."""
        if self._raw:
            return self._raw
        message: dict[str, object] = {"role": "assistant", "content": "".join(self._text)}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        choice = {"index": 0, "message": message, "logprobs": None,
                  "finish_reason": self.ending.outcome.finish_reason or "stop"}
        return json_encode({**self._head, "choices": [choice], "usage": self.ending.usage_json()})
