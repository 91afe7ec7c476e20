"""What IOP reads from a copy of an OpenAI-compatible backend's replies. Pure.

The replies themselves travel whole, as `raw`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from iop.adapters.wire.asked import BaseReader
from iop.adapters.wire.foreign_json import decode_leniently, read_fitting
from iop.adapters.wire.lines import EventSplitter
from iop.adapters.wire.refusals import error_told, no_answer
from iop.adapters.wire.tokens import usage_of
from iop.errors import UpstreamError
from iop.events import now_us
from iop.modelapis import CHAT
from iop.proto.run_pb2 import CHANNEL_REASONING, CHANNEL_TEXT, RuntimeEvent, Usage

BODY_BYTES = 64 * 1024 * 1024     # a whole reply that does not stream


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None     # llama.cpp, vLLM to 0.11, DeepSeek
    reasoning: str | None = None             # vLLM from 0.12, OpenRouter
    tool_calls: msgspec.Raw = msgspec.Raw(b"")


class _Choice(msgspec.Struct, gc=False):
    index: int = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    text: str | None = None                  # the older completions API
    finish_reason: str | None = None


class _Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class Usages(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    input_tokens: int | None = None          # the responses API's names
    output_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens_details: _Details | None = None


class Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Usages | None = None
    error: Any = None
    object: str | None = None


_decode = msgspec.json.Decoder(Chunk).decode
_NOTHING = (None, "", [], {})


def _read(payload: bytes) -> Chunk:
    """Fields of other types than expected count as absent; only what is not JSON is refused."""
    try:
        return _decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return read_fitting(payload, Chunk)


def _says_something(choice: _Choice, payload: bytes) -> bool:
    """Whether a chunk is more than the role, or an empty one that only keeps the connection alive."""
    delta = choice.delta
    if delta is None:
        return bool(choice.text) or choice.message is not None
    if delta.content or delta.reasoning_content or delta.reasoning or bytes(delta.tool_calls) not in (b"", b"null", b"[]"):
        return True
    found = decode_leniently(payload)["choices"][0].get("delta") or {}
    return any(value not in _NOTHING for name, value in found.items() if name != "role")


def read_usage(usage: Usages) -> Usage:
    details = usage.prompt_tokens_details or usage.input_tokens_details
    return usage_of(usage.prompt_tokens or usage.input_tokens, usage.completion_tokens or usage.output_tokens,
                    total=usage.total_tokens, cached=details.cached_tokens if details else 0)


class StreamReader(BaseReader):
    """A streaming reply. `done` is the backend's own proof that it is whole: [DONE]."""

    media_type = b"text/event-stream"

    def __init__(self, api: str = CHAT) -> None:
        super().__init__()
        self._api = api
        self._splitter = EventSplitter()
        self._counts = 0                         # how often it was heard without a choice
        self._has_choice = False                 # one came that was looked at closely

    def feed(self, data: bytes) -> list[RuntimeEvent]:
        return self._events(self._splitter.feed(data))

    def finish(self) -> list[RuntimeEvent]:
        """The body has ended. Raises UpstreamError unless the reply is whole."""
        return self._events(self._splitter.finish())

    def _events(self, payloads: list[bytes]) -> list[RuntimeEvent]:
        at_us = now_us()
        found: list[RuntimeEvent] = []
        try:
            for payload in payloads:
                if self.done:
                    break
                if payload[:1] == b"{" or not self._is_end(payload):
                    found.append(self._event(payload, at_us))
        except UpstreamError as fault:
            if not found:
                raise
            self.fault = fault                   # what came before it is told
        return found

    def _is_end(self, payload: bytes) -> bool:
        if payload[:6] == b"[DONE]":
            if not self._has_choice and self.heard == self._counts:
                raise no_answer(self._api, "it ended without a choice")
            self.done = True
        return self.done or not payload

    def _event(self, payload: bytes, at_us: int) -> RuntimeEvent:
        try:
            chunk = _decode(payload)
        except (msgspec.DecodeError, RecursionError):
            chunk = _read(payload)
        if chunk.choices:
            choice = chunk.choices[0]
            delta = choice.delta
            if delta is not None and delta.content and choice.index == 0 and not choice.finish_reason and chunk.usage is None:
                self.heard += 1                  # nearly every chunk
                return RuntimeEvent(at_us=at_us, output=delta.content, raw=payload)
            return self._output(chunk, payload, at_us)
        if chunk.error is not None:
            raise error_told("The backend ended its stream with an error:", chunk.error, payload)
        if chunk.usage is None:
            return RuntimeEvent(at_us=at_us, channel=CHANNEL_TEXT, output="", raw=payload)
        self.heard += 1
        self._counts += 1
        self.usage = read_usage(chunk.usage)
        return RuntimeEvent(at_us=at_us, usage=self.usage, raw=payload)

    def _output(self, chunk: Chunk, payload: bytes, at_us: int) -> RuntimeEvent:
        choice = chunk.choices[0]            # type: ignore[index]  # it has one
        text, channel = "", CHANNEL_TEXT
        self._has_choice = True
        self.heard += choice.finish_reason is not None or _says_something(choice, payload)
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


class WholeReader(BaseReader):
    """A reply that does not stream: one output event, whose raw is the whole body."""

    media_type = b"application/json"

    def __init__(self, limit_bytes: int = BODY_BYTES) -> None:
        super().__init__()
        self._limit = limit_bytes
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[RuntimeEvent]:
        self.heard += len(data)
        self._size += len(data)
        if self._size > self._limit:
            raise UpstreamError(f"The backend's reply has more than {self._limit} bytes, which is the limit of one reply.")
        self._pieces.append(data)
        return []

    def finish(self) -> list[RuntimeEvent]:
        body = b"".join(self._pieces)
        chunk = _read(body)
        if chunk.error is not None and not chunk.choices:
            raise error_told("The backend answered with an error:", chunk.error, body)
        if chunk.object == "error":              # vLLM to 0.9 told its errors without an envelope
            raise error_told("The backend answered with an error:", decode_leniently(body), body)
        self._check(chunk)
        choice = chunk.choices[0] if chunk.choices else _Choice()
        text = (choice.message.content if choice.message is not None else choice.text) or ""
        self.finish_reason = choice.finish_reason or ""
        if chunk.usage is not None:
            self.usage = read_usage(chunk.usage)
        self.done = True
        return [RuntimeEvent(at_us=now_us(), channel=CHANNEL_TEXT, output=text, raw=body)]

    def _check(self, reply: Chunk) -> None:
        """Raises UpstreamError for what is no answer of the API that was asked."""
