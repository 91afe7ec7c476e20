"""What IOP reads from a copy of replies in Anthropic's Messages API (docs.anthropic.com, Streaming, 2026-11). Pure.

The replies themselves travel whole, as `raw`: each event's data, whose `type` is the name of the event.
"""

from __future__ import annotations

from typing import Any

import msgspec

from iop.adapters.wire.chat import StreamReader, WholeReader
from iop.adapters.wire.foreign_json import decode_leniently, read_fitting
from iop.adapters.wire.refusals import RETRYABLE, error_text, no_answer
from iop.adapters.wire.tokens import usage_of
from iop.errors import UpstreamError
from iop.events import now_us
from iop.modelapis import MESSAGES
from iop.proto.run_pb2 import CHANNEL_REASONING, CHANNEL_TEXT, RuntimeEvent, Usage

# Its words for why a model stopped, in those of chat/completions; others are kept.
_FINISH_REASONS = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls",
                   "model_context_window_exceeded": "length", "refusal": "content_filter"}

# The status that an error in a stream would have had as an answer (docs.anthropic.com, Errors, 2026-11).
_STATUS = {"invalid_request_error": 400, "authentication_error": 401, "permission_error": 403, "not_found_error": 404,
           "request_too_large": 413, "rate_limit_error": 429, "api_error": 500, "overloaded_error": 529}


class _Usage(msgspec.Struct):
    input_tokens: int | None = None              # those that no cache had
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Delta(msgspec.Struct):
    text: str | None = None
    thinking: str | None = None
    stop_reason: str | None = None


class _Block(msgspec.Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None


class _Message(msgspec.Struct):
    """A whole answer, or what a stream begins with."""

    type: str = ""
    content: list[_Block] | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None
    error: Any = None


class _Event(msgspec.Struct):
    type: str = ""
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: _Message | None = None
    usage: _Usage | None = None
    error: Any = None


class _Named(msgspec.Struct):
    type: str = ""


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_message = msgspec.json.Decoder(_Message).decode
_decode_name = msgspec.json.Decoder(_Named).decode


class Count:
    """The tokens of an answer, as its events tell them: each field's last word counts, for all are sums so far."""

    def __init__(self) -> None:
        self._told = _Usage()
        self.is_known = False

    def add(self, usage: _Usage | None) -> None:
        if usage is None:
            return
        self.is_known = True
        for name in usage.__struct_fields__:
            value = getattr(usage, name)
            if value is not None:
                setattr(self._told, name, max(0, value))

    def usage(self) -> Usage:
        told = self._told
        cached = told.cache_read_input_tokens or 0
        prompt = (told.input_tokens or 0) + cached + (told.cache_creation_input_tokens or 0)
        return usage_of(prompt, told.output_tokens, cached=cached)


class MessagesReader(StreamReader):
    """A streaming reply. `done` is the backend's own proof that it is whole: message_stop."""

    def __init__(self) -> None:
        super().__init__()
        self._count = Count()

    def _is_end(self, payload: bytes) -> bool:
        return self.done or not payload

    def _event(self, payload: bytes, at_us: int) -> RuntimeEvent:
        event = _read_event(payload)
        self.heard += event.type != "ping"
        if event.type == "content_block_delta" and event.delta is not None:
            if event.delta.thinking:
                return RuntimeEvent(at_us=at_us, channel=CHANNEL_REASONING, output=event.delta.thinking, raw=payload)
            return RuntimeEvent(at_us=at_us, channel=CHANNEL_TEXT, output=event.delta.text or "", raw=payload)
        if event.type == "message_delta":
            return self._message_delta(event, payload, at_us)
        if event.type == "error" or (not event.type and event.error is not None):
            raise _error("The backend ended its stream with an error:", event.error, payload)
        if event.type == "message_start" and event.message is not None:
            self._count.add(event.message.usage)
        elif event.type == "message_stop":
            self.done = True
        block = event.content_block              # its first text stands in its start, where there is one
        thought = block.thinking if block is not None else None
        text = block.text if block is not None else None
        return RuntimeEvent(at_us=at_us, channel=CHANNEL_REASONING if thought else CHANNEL_TEXT,
                            output=thought or text or "", raw=payload)

    def _message_delta(self, event: _Event, payload: bytes, at_us: int) -> RuntimeEvent:
        if event.delta is not None and event.delta.stop_reason:
            self.finish_reason = finish_reason_of(event.delta.stop_reason)
        self._count.add(event.usage)
        if not self._count.is_known:
            return RuntimeEvent(at_us=at_us, output="", raw=payload)
        self.usage = self._count.usage()
        return RuntimeEvent(at_us=at_us, usage=self.usage, raw=payload)


class MessageReader(WholeReader):
    """A reply that does not stream: one output event, whose raw is the whole body."""

    def finish(self) -> list[RuntimeEvent]:
        body = b"".join(self._pieces)
        message = _read_message(body)
        if message.error is not None:
            raise _error("The backend answered with an error:", message.error, body)
        if message.content is None:
            raise no_answer(MESSAGES, "it has no list of content blocks")
        if message.usage is not None:
            count = Count()
            count.add(message.usage)
            self.usage = count.usage()
        self.finish_reason = finish_reason_of(message.stop_reason or "")
        self.done = True
        text = "".join([block.text for block in message.content if block.type == "text" and block.text])
        return [RuntimeEvent(at_us=now_us(), channel=CHANNEL_TEXT, output=text, raw=body)]


def _error(opening: str, error: object, payload: bytes) -> UpstreamError:
    status = _status_of(error)
    return UpstreamError(f"{opening} {error_text(payload)}", status=status, body=payload[:65536],
                         retryable=status in RETRYABLE)


def finish_reason_of(stop_reason: str) -> str:
    """In the words of chat/completions where they have one for it."""
    return _FINISH_REASONS.get(stop_reason, stop_reason)


def _status_of(error: Any) -> int:
    return _STATUS.get(str(error.get("type")), 0) if isinstance(error, dict) else 0


def _read_event(payload: bytes) -> _Event:
    """An event whose fields have other types than expected is passed on by its name; only what is not JSON is refused."""
    try:
        return _decode_event(payload)
    except msgspec.ValidationError:
        return _Event(type=_name(payload))
    except (msgspec.DecodeError, RecursionError):
        value = decode_leniently(payload)        # lone surrogates: half an emoji, which the other half follows
    return _Event(type=str(value.get("type", "")) if isinstance(value, dict) else "")


def _name(payload: bytes) -> str:
    try:
        return _decode_name(payload).type
    except (msgspec.DecodeError, RecursionError):
        return ""


def _read_message(body: bytes) -> _Message:
    try:
        return _decode_message(body)
    except (msgspec.DecodeError, RecursionError):
        return read_fitting(body, _Message)
