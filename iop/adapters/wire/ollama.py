"""Ollama's native wire, and OpenAI's chat told in it. Pure.

Formats: docs/api.md of ollama/ollama, as its Python client 0.6.3 has them (read 2026-12). Durations are nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from iop.adapters.wire.chat import BODY_BYTES
from iop.adapters.wire.lines import LINE_BYTES, LineSplitter
from iop.errors import InvalidRequest, UpstreamError
from iop.events import now_us
from iop.proto.run_pb2 import CHANNEL_REASONING, CHANNEL_TEXT, RuntimeEvent, Usage

NDJSON, JSON = b"application/x-ndjson", b"application/json"

# OpenAI's name -> Ollama's, inside `options`.
_OPTIONS = {"temperature": "temperature", "top_p": "top_p", "seed": "seed", "frequency_penalty": "frequency_penalty",
            "presence_penalty": "presence_penalty", "max_tokens": "num_predict", "max_completion_tokens": "num_predict"}
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
    prompt, completion = max(0, line.prompt_eval_count or 0), max(0, line.eval_count or 0)
    return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)


def _spoken(line: _Line) -> tuple[str, int]:
    """(text, channel) of a line."""
    message = line.message or _Message(line.response, line.thinking)
    if message.thinking and not message.content:
        return message.thinking, CHANNEL_REASONING
    return message.content or "", CHANNEL_TEXT


class _Reader:
    """What the readers share: lines in, the last of them (`done: true`) as the proof."""

    def __init__(self, streams: bool = True) -> None:
        self.media_type = NDJSON if streams else JSON
        self.done = False
        self.finish_reason = ""
        self.usage: Usage | None = None
        self._splitter = LineSplitter(LINE_BYTES if streams else BODY_BYTES)

    def feed(self, data: bytes) -> list[RuntimeEvent]:
        return self._events(self._splitter.feed(data))

    def finish(self) -> list[RuntimeEvent]:
        return self._events([self._splitter.finish()])

    def _events(self, lines: list[bytes]) -> list[RuntimeEvent]:
        at_us = now_us()
        found: list[RuntimeEvent] = []
        for raw in lines:
            if raw and not self.done:
                line = _read(raw)
                if line.done:
                    self._last(line)
                found += self._line(line, raw, at_us)
        return found

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
    """Ollama's lines as OpenAI's chunks: id, created and model are the same in all (model-apis.md §3)."""

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


def request_body(model: str, messages: Any, options: Mapping[str, Any], keep_alive: str | int | None) -> dict[str, Any]:
    """A streaming /api/chat."""
    body: dict[str, Any] = {"model": model, "messages": messages, "stream": True}
    if options:
        body["options"] = dict(options)
    if keep_alive is not None:
        body["keep_alive"] = keep_alive
    return body


def from_openai(body: Mapping[str, Any], model: str, options: Mapping[str, Any],
                keep_alive: str | int | None) -> dict[str, Any]:
    """A chat/completions body as one of /api/chat. Raises InvalidRequest for what Ollama cannot do."""
    if body.get("n", 1) not in (1, None):
        raise InvalidRequest("This backend gives one answer; `n` must be 1.")
    wanted = dict(options)
    wanted |= {theirs: body[ours] for ours, theirs in _OPTIONS.items() if body.get(ours) is not None}
    if body.get("stop"):
        wanted["stop"] = [body["stop"]] if isinstance(body["stop"], str) else body["stop"]
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise InvalidRequest("`messages` must be a list of messages.")
    asked = request_body(model, to_messages(messages), wanted, keep_alive)
    asked["stream"] = body.get("stream") is True
    if body.get("tools"):
        asked["tools"] = body["tools"]
    if body.get("reasoning_effort") == "none":
        asked["think"] = False
    wish = body.get("response_format")
    if isinstance(wish, dict) and wish.get("type") == "json_object":
        asked["format"] = "json"
    elif isinstance(wish, dict) and wish.get("type") == "json_schema":
        schema = wish.get("json_schema")
        asked["format"] = (schema.get("schema") if isinstance(schema, dict) else None) or "json"
    return asked


def to_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """OpenAI's messages as Ollama's: text apart from images, arguments as objects, tool answers by name."""
    names: dict[str, str] = {}
    found = []
    for message in messages:
        told: dict[str, Any] = {"role": "system" if message.get("role") == "developer" else message.get("role", "user")}
        told |= _content(message.get("content"))
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            told["tool_calls"] = [_call(call, names) for call in calls]
        if message.get("role") == "tool" and str(message.get("tool_call_id")) in names:
            told["tool_name"] = names[str(message["tool_call_id"])]
        found.append(told)
    return found


def _call(call: Any, names: dict[str, str]) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise InvalidRequest("A tool call must be an object with a `function`.")
    names[str(call.get("id"))] = function.get("name", "")
    try:
        arguments = msgspec.json.decode(function.get("arguments") or "{}")
    except (msgspec.DecodeError, TypeError):
        raise InvalidRequest("A tool call's `arguments` must be a JSON object as text.") from None
    return {"function": {"name": function.get("name", ""), "arguments": arguments}}


def _content(content: Any) -> dict[str, Any]:
    if content is None:
        return {"content": ""}
    if isinstance(content, str):
        return {"content": content}
    texts: list[str] = []
    images: list[str] = []
    for part in content if isinstance(content, list) else [content]:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            texts.append(str(part.get("text", "")))
        elif kind == "image_url":
            images.append(_image(part.get("image_url")))
        else:
            raise InvalidRequest(f"This backend takes text and images; a message holds {kind!r}.")
    return {"content": "\n".join(texts)} | ({"images": images} if images else {})


def _image(value: Any) -> str:
    url = value.get("url") if isinstance(value, dict) else value
    if not isinstance(url, str) or not url.startswith("data:") or ";base64," not in url:
        raise InvalidRequest("An image must be a data: URL in base64; this node fetches nothing by itself.")
    return url.partition(";base64,")[2]
