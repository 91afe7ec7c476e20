"""What IOP reads from a copy of an OpenAI-compatible backend's replies, and how its requests are made. Pure.

The replies themselves travel whole, as `raw`.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import msgspec

from iop.adapters.wire.lines import EventSplitter
from iop.errors import InvalidRequest, UpstreamError
from iop.events import now_us
from iop.proto.run_pb2 import CHANNEL_REASONING, CHANNEL_TEXT, RunRequest, RuntimeEvent, Usage

BODY_BYTES = 64 * 1024 * 1024     # a whole reply that does not stream


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None     # llama.cpp, vLLM to 0.11, DeepSeek
    reasoning: str | None = None             # vLLM from 0.12, OpenRouter


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    text: str | None = None                  # the older completions API
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    input_tokens: int | None = None          # the responses API's names
    output_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens_details: _Details | None = None


class _Response(msgspec.Struct):
    usage: _Usage | None = None
    status: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    type: str | None = None                  # the responses API: its kind of event
    delta: Any = None                        # and its text
    response: _Response | None = None


_decode = msgspec.json.Decoder(_Chunk).decode
_RESPONSE_ENDS = {"response.completed": "stop", "response.incomplete": "length"}


def _read(payload: bytes) -> _Chunk:
    """A chunk whose fields have other types than expected is still passed on; only what is not JSON is refused."""
    try:
        return _decode(payload)
    except msgspec.ValidationError:
        return _Chunk(choices=[_Choice()])
    except msgspec.DecodeError:
        pass
    cleaned = json.dumps(decode_leniently(payload), ensure_ascii=False).encode("utf-8", "replace")
    try:
        return _decode(cleaned)
    except msgspec.DecodeError:
        return _Chunk(choices=[_Choice()])


def decode_leniently(payload: bytes) -> Any:
    """JSON that may hold lone surrogates, which some engines send for half an emoji. Raises UpstreamError."""
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        raise UpstreamError("The backend sent a chunk that is not JSON.") from None


def read_usage(usage: _Usage) -> Usage:
    details = usage.prompt_tokens_details or usage.input_tokens_details
    prompt = usage.prompt_tokens or usage.input_tokens or 0
    completion = usage.completion_tokens or usage.output_tokens or 0
    return Usage(prompt_tokens=max(0, prompt), completion_tokens=max(0, completion),
                 total_tokens=max(0, usage.total_tokens or prompt + completion),
                 cached_tokens=max(0, (details.cached_tokens or 0) if details else 0))


def error_text(body: bytes) -> str:
    """The sentence in a backend's error body, or empty."""
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body[:200].decode("utf-8", "replace").strip()
    return _error_sentence(value.get("error", value) if isinstance(value, dict) else value)


def _error_sentence(error: object) -> str:
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or ""
    return str(error)[:500].encode("utf-8", "replace").decode("utf-8") if error else ""


class StreamReader:
    """A streaming reply. `done` is the backend's own proof that it is whole: [DONE], or the responses API's last event."""

    media_type = b"text/event-stream"

    def __init__(self) -> None:
        self._splitter = EventSplitter()
        self.done = False
        self.finish_reason = ""
        self.usage: Usage | None = None

    def feed(self, data: bytes) -> list[RuntimeEvent]:
        return self._events(self._splitter.feed(data))

    def finish(self) -> list[RuntimeEvent]:
        """The body has ended. Raises UpstreamError unless the reply is whole."""
        return self._events(self._splitter.finish())

    def _events(self, payloads: list[bytes]) -> list[RuntimeEvent]:
        at_us = now_us()
        return [self._event(payload, at_us) for payload in payloads if not self._is_end(payload)]

    def _is_end(self, payload: bytes) -> bool:
        if payload[:6] == b"[DONE]":
            self.done = True
        return self.done or not payload

    def _event(self, payload: bytes, at_us: int) -> RuntimeEvent:
        chunk = _read(payload)
        if chunk.choices:
            return self._output(chunk, payload, at_us)
        if chunk.error is not None:
            sentence = _error_sentence(chunk.error)
            raise UpstreamError(f"The backend ended its stream with an error: {sentence}", body=payload[:65536])
        if chunk.usage is not None and chunk.type is None:
            self.usage = read_usage(chunk.usage)
            return RuntimeEvent(at_us=at_us, usage=self.usage, raw=payload)
        return self._typed(chunk, payload, at_us)

    def _output(self, chunk: _Chunk, payload: bytes, at_us: int) -> RuntimeEvent:
        choice = chunk.choices[0]            # type: ignore[index]  # it has one
        text, channel = "", CHANNEL_TEXT
        if choice.index == 0:                # of several answers (n > 1) the first is the run's text
            delta = choice.delta
            if delta is None:
                text = choice.text or ""
            elif delta.content:
                text = delta.content
            elif delta.reasoning_content or delta.reasoning:
                text, channel = delta.reasoning_content or delta.reasoning or "", CHANNEL_REASONING
            if choice.finish_reason:
                self.finish_reason = choice.finish_reason
        if chunk.usage is not None:
            self.usage = read_usage(chunk.usage)
        return RuntimeEvent(at_us=at_us, channel=channel, output=text, raw=payload)

    def _typed(self, chunk: _Chunk, payload: bytes, at_us: int) -> RuntimeEvent:
        """An event of the responses API."""
        kind = chunk.type or ""
        if kind in _RESPONSE_ENDS:
            self.done, self.finish_reason = True, _RESPONSE_ENDS[kind]
            if chunk.response is not None and chunk.response.usage is not None:
                self.usage = read_usage(chunk.response.usage)
        elif kind in ("response.failed", "error"):
            raise UpstreamError("The backend ended its stream with an error.", body=payload[:65536])
        text = chunk.delta if isinstance(chunk.delta, str) and kind.endswith("text.delta") else ""
        return RuntimeEvent(at_us=at_us, channel=CHANNEL_REASONING if "reasoning" in kind else CHANNEL_TEXT,
                            output=text, raw=payload)


class WholeReader:
    """A reply that does not stream: one output event, whose raw is the whole body."""

    media_type = b"application/json"

    def __init__(self, limit_bytes: int = BODY_BYTES) -> None:
        self._limit = limit_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self.done = False
        self.finish_reason = ""
        self.usage: Usage | None = None

    def feed(self, data: bytes) -> list[RuntimeEvent]:
        self._size += len(data)
        if self._size > self._limit:
            raise UpstreamError(f"The backend's reply has more than {self._limit} bytes, which is the limit of one reply.")
        self._pieces.append(data)
        return []

    def finish(self) -> list[RuntimeEvent]:
        body = b"".join(self._pieces)
        chunk = _read(body)
        if chunk.error is not None and not chunk.choices:
            raise UpstreamError(f"The backend answered with an error: {_error_sentence(chunk.error)}", body=body[:65536])
        choice = chunk.choices[0] if chunk.choices else _Choice()
        text = (choice.message.content if choice.message is not None else choice.text) or ""
        self.finish_reason = choice.finish_reason or ""
        if chunk.usage is not None:
            self.usage = read_usage(chunk.usage)
        self.done = True
        return [RuntimeEvent(at_us=now_us(), channel=CHANNEL_TEXT, output=text, raw=body)]


class ApiRequest(NamedTuple):
    """What a backend is asked, and whether the run wants a stream. Where only IOP does, `plain` is the body without it."""

    path: str
    body: bytes
    streams: bool
    plain: bytes = b""


def request_of(request: RunRequest, model: str) -> ApiRequest:
    """Raises InvalidRequest.

    A model API's body travels whole: only `model` becomes the backend's name, and a chat is asked to stream and to tell its
    usage.
    """
    kind = request.WhichOneof("input")
    if kind == "body":
        return _passed_on(request.api or "chat/completions", request.body, model)
    if kind == "messages":
        messages: Any = msgspec.Raw(_checked_messages(request.messages))
    elif kind == "prompt":
        messages = [{"role": "user", "content": request.prompt}]
    else:
        raise InvalidRequest("The run has no input; give a prompt, messages or a body.")
    return ApiRequest("chat/completions", _streaming({"model": model, "messages": messages}), True)


def refuses_to_stream(status: int, body: bytes) -> bool:
    """Whether a refusal may be of what IOP has put into the body. A wrong guess costs one more refusal."""
    return status in (400, 422) and b"stream" in body


def _streaming(fields: dict[str, Any], options: Any = None) -> bytes:
    asked = (options if isinstance(options, dict) else {}) | {"include_usage": True}
    return msgspec.json.encode(fields | {"stream": True, "stream_options": asked})


def _checked_messages(messages: bytes) -> bytes:
    try:
        if isinstance(msgspec.json.decode(messages), list):
            return messages
    except (msgspec.DecodeError, RecursionError):
        pass
    raise InvalidRequest("`messages` must be a JSON list of messages.")


def _passed_on(api: str, body: bytes, model: str) -> ApiRequest:
    if not all(part.replace("_", "").isalnum() for part in api.split("/")):
        raise InvalidRequest(f"{api[:80]!r} is not the path of a model API.")
    try:
        fields: dict[str, Any] = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        stream = msgspec.json.decode(fields.get("stream", b"null"))
        options = msgspec.json.decode(fields.get("stream_options", b"null"))
    except (msgspec.DecodeError, RecursionError):
        raise InvalidRequest("The request's body must be a JSON object.") from None
    fields["model"] = model
    plain = msgspec.json.encode(fields)
    if api not in ("chat/completions", "completions") or not isinstance(stream, bool | None):
        return ApiRequest(api, plain, stream is True)
    return ApiRequest(api, _streaming(fields, options), stream is True, b"" if stream else plain)
