"""Ollama's replies: as they are, or as OpenAI's chunks. Pure.

Formats: docs/api.md of ollama/ollama, as its Python client 0.6.3 has them (read 2026-12). Durations are nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from iop.adapters.wire.asked import BaseReader
from iop.adapters.wire.chat import BODY_BYTES
from iop.adapters.wire.lines import LINE_BYTES, LineSplitter
from iop.adapters.wire.refusals import no_answer
from iop.adapters.wire.tokens import usage_of
from iop.errors import UpstreamError
from iop.events import now_us
from iop.proto.run_pb2 import CHANNEL_REASONING, CHANNEL_TEXT, RuntimeEvent, Usage

NDJSON, JSON = b"application/x-ndjson", b"application/json"

_encode = msgspec.json.Encoder().encode


class _Message(msgspec.Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class _Line(msgspec.Struct):
    message: _Message | None = None          # /api/chat
    response: str | None = None              # /api/generate
    thinking: str | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    error: Any = None

    @property
    def is_of_an_answer(self) -> bool:
        return self.message is not None or self.response is not None

    @property
    def says_something(self) -> bool:
        message = self.message
        return self.done or bool(self.response or self.thinking) or (
            message is not None and bool(message.content or message.thinking or message.tool_calls))


_decode = msgspec.json.Decoder(_Line).decode


def _read(line: bytes) -> _Line:
    try:
        found = _decode(line)
    except (msgspec.DecodeError, RecursionError):
        raise UpstreamError("The backend sent a line that is not Ollama's JSON.") from None
    if found.error is not None:
        raise UpstreamError(f"The backend ended its answer with an error: {str(found.error)[:500]}", body=line[:65536])
    return found


def _usage(line: _Line) -> Usage:
    return usage_of(line.prompt_eval_count, line.eval_count)


def _spoken(line: _Line) -> tuple[str, int]:
    """(text, channel) of a line."""
    message = line.message or _Message(line.response, line.thinking)
    if message.thinking and not message.content:
        return message.thinking, CHANNEL_REASONING
    return message.content or "", CHANNEL_TEXT


class _Reader(BaseReader):
    """What the readers share: lines in, the last of them (`done: true`) as the proof."""

    def __init__(self, streams: bool = True) -> None:
        super().__init__()
        self.media_type = NDJSON if streams else JSON
        self._is_answer = False
        self._splitter = LineSplitter(LINE_BYTES if streams else BODY_BYTES)

    def feed(self, data: bytes) -> list[RuntimeEvent]:
        return self._events(self._splitter.feed(data))

    def finish(self) -> list[RuntimeEvent]:
        return self._events([self._splitter.finish()])

    def _events(self, lines: list[bytes]) -> list[RuntimeEvent]:
        at_us = now_us()
        found: list[RuntimeEvent] = []
        try:
            for raw in lines:
                if raw and not self.done:
                    found += self._read(_read(raw), raw, at_us)
        except UpstreamError as fault:
            if not found:
                raise
            self.fault = fault                   # what came before it is told
        return found

    def _read(self, line: _Line, raw: bytes, at_us: int) -> list[RuntimeEvent]:
        self._is_answer = self._is_answer or line.is_of_an_answer
        if line.done:
            if not self._is_answer:
                raise no_answer("Ollama", "it has neither a message nor a response")
            self._last(line)
        self.heard += line.says_something
        return self._line(line, raw, at_us)

    def _last(self, line: _Line) -> None:
        self.done = True
        self.finish_reason = line.done_reason or "stop"
        self.usage = _usage(line)

    def _line(self, line: _Line, raw: bytes, at_us: int) -> list[RuntimeEvent]:
        raise NotImplementedError


class NativeReader(_Reader):
    """Ollama's lines as they are."""

    def _line(self, line: _Line, raw: bytes, at_us: int) -> list[RuntimeEvent]:
        text, channel = _spoken(line)
        return [RuntimeEvent(at_us=at_us, channel=channel, output=text, raw=raw)]


class OpenAIReader(_Reader):
    """Ollama's lines as OpenAI's chunks: id, created and model are the same in all."""

    def __init__(self, run_id: str, created_s: int, model: str, *, streams: bool) -> None:
        super().__init__(streams)
        self._streams = streams
        self._run_id = run_id
        self._head = {"id": f"chatcmpl-{run_id}", "created": created_s, "model": model}
        self._begun = False
        self._calls = 0

    def _last(self, line: _Line) -> None:
        super()._last(line)
        if (line.message and line.message.tool_calls) or self._calls:
            self.finish_reason = "tool_calls"
        elif self.finish_reason not in ("stop", "length"):
            self.finish_reason = "stop"           # "load", "unload": nothing was cut

    def _line(self, line: _Line, raw: bytes, at_us: int) -> list[RuntimeEvent]:
        message = line.message or _Message()
        text, channel = _spoken(line)
        if not self._streams:
            return [RuntimeEvent(at_us=at_us, channel=CHANNEL_TEXT, output=message.content or "", raw=self._whole(message))]
        found = []
        if not self._begun:
            self._begun = True
            found.append(RuntimeEvent(at_us=at_us, output="", raw=self._chunk({"role": "assistant", "content": ""})))
        delta = _delta(message) | self._tool_calls(message)
        if delta:
            found.append(RuntimeEvent(at_us=at_us, channel=channel, output=text, raw=self._chunk(delta)))
        if line.done:
            found.append(RuntimeEvent(at_us=at_us, output="", raw=self._chunk({}, self.finish_reason)))
            found.append(RuntimeEvent(at_us=at_us, usage=self.usage, raw=_encode(
                self._head | {"object": "chat.completion.chunk", "choices": [], "usage": self._counts()})))
        return found

    def _chunk(self, delta: Mapping[str, Any], finish_reason: str | None = None) -> bytes:
        return _encode(self._head | {"object": "chat.completion.chunk", "choices": [
            {"index": 0, "delta": delta, "finish_reason": finish_reason}]})

    def _whole(self, message: _Message) -> bytes:
        body = {"role": "assistant", "content": message.content or ""} | _delta(message) | self._tool_calls(message)
        return _encode(self._head | {"object": "chat.completion", "usage": self._counts(), "choices": [
            {"index": 0, "message": body, "finish_reason": self.finish_reason}]})

    def _counts(self) -> dict[str, int]:
        usage = self.usage or Usage()
        return {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens,
                "total_tokens": usage.total_tokens}

    def _tool_calls(self, message: _Message) -> dict[str, Any]:
        calls = []
        for call in message.tool_calls or []:
            function = call.get("function") or {}
            arguments = _encode(function.get("arguments") or {}).decode()
            entry = {"id": f"call_{self._run_id[-12:]}_{self._calls}", "type": "function",
                     "function": {"name": function.get("name", ""), "arguments": arguments}}
            calls.append({"index": self._calls} | entry if self._streams else entry)
            self._calls += 1
        return {"tool_calls": calls} if calls else {}


def _delta(message: _Message) -> dict[str, Any]:
    delta: dict[str, Any] = {}
    if message.thinking:
        delta["reasoning_content"] = message.thinking
    if message.content:
        delta["content"] = message.content
    return delta
