"""What IOP reads from a copy of replies in OpenAI's Responses API (platform.openai.com, Streaming, 2026-11). Pure.

The replies themselves travel whole, as `raw`: each event's data, whose `type` is the name of the event.
"""

from __future__ import annotations

from typing import Any

import msgspec

from iop.adapters.wire.chat import StreamReader, Usages, WholeReader, read_usage
from iop.adapters.wire.foreign_json import decode_leniently, encoded, read_fitting, read_object
from iop.adapters.wire.refusals import error_told, no_answer
from iop.events import now_us
from iop.modelapis import RESPONSES
from iop.proto.run_pb2 import CHANNEL_REASONING, CHANNEL_TEXT, RuntimeEvent

_ENDS = frozenset(("response.completed", "response.incomplete"))
_PINGS = frozenset(("ping", "keepalive", "response.in_progress", "response.queued"))     # they say that it lives, not what
_CALLS = frozenset(("function_call", "custom_tool_call"))


class _Part(msgspec.Struct):
    text: str | None = None


class _Item(msgspec.Struct):
    type: str = ""
    content: list[_Part] | None = None


class _Response(msgspec.Struct):
    status: str | None = None
    output: list[_Item] | None = None
    usage: Usages | None = None
    error: Any = None


class _Event(msgspec.Struct):
    type: str = ""
    delta: Any = None
    response: _Response | None = None
    error: Any = None


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_response = msgspec.json.Decoder(_Response).decode


class ResponsesReader(StreamReader):
    """A streaming reply. `done` is the backend's own proof that it is whole: response.completed or response.incomplete."""

    def _is_end(self, payload: bytes) -> bool:
        return self.done or not payload or payload[:6] == b"[DONE]"      # which some send, and which proves nothing here

    def _event(self, payload: bytes, at_us: int) -> RuntimeEvent:
        event = _read_event(payload)
        kind = event.type
        self.heard += bool(kind) and kind not in _PINGS
        if kind in _ENDS and event.response is not None:
            self._last(event.response)
        elif kind in ("response.failed", "error") or (not kind and event.error is not None):
            told = event.error if event.response is None else event.response.error
            raise error_told("The backend ended its stream with an error:", told or decode_leniently(payload), payload)
        text = event.delta if isinstance(event.delta, str) and kind.endswith("text.delta") else ""
        return RuntimeEvent(at_us=at_us, channel=CHANNEL_REASONING if "reasoning" in kind else CHANNEL_TEXT, output=text,
                            raw=payload)

    def _last(self, response: _Response) -> None:
        self.done = True
        self.finish_reason = _finish_reason(response)
        if response.usage is not None:
            self.usage = read_usage(response.usage)


class ResponseReader(WholeReader):
    """A reply that does not stream: one output event, whose raw is the whole body."""

    def finish(self) -> list[RuntimeEvent]:
        body = b"".join(self._pieces)
        response = _read_response(body)
        if response.error is not None:
            raise error_told("The backend answered with an error:", response.error, body)
        if response.output is None:
            raise no_answer(RESPONSES, "it has no list of output items")
        self.finish_reason = _finish_reason(response)
        if response.usage is not None:
            self.usage = read_usage(response.usage)
        self.done = True
        text = "".join([part.text or "" for item in response.output if item.type == "message" for part in item.content or ()])
        return [RuntimeEvent(at_us=now_us(), channel=CHANNEL_TEXT, output=text, raw=body)]


class JoiningResponseReader(ResponsesReader):
    """A reply that streams, told as if it did not: its last event holds the whole answer."""

    told_as = WholeReader.media_type

    def __init__(self) -> None:
        super().__init__()
        self._items: list[Any] = []

    def _events(self, payloads: list[bytes]) -> list[RuntimeEvent]:
        was_done = self.done
        told = super()._events(payloads)
        if was_done:
            return []
        for event in told:
            self._items += _items_done(event.raw)
        return [self._whole(told[-1])] if self.done else []

    def _whole(self, last: RuntimeEvent) -> RuntimeEvent:
        """Servers that leave the items out of the last event have told them one by one."""
        response = read_object(last.raw).get("response")
        if self._items and isinstance(response, dict) and not response.get("output"):
            response["output"] = self._items
        reader = ResponseReader()
        reader.feed(encoded(response))
        return reader.finish()[0]


def _items_done(payload: bytes) -> list[Any]:
    event = read_object(payload) if b"response.output_item.done" in payload else {}
    return [event.get("item")] if event.get("type") == "response.output_item.done" else []


def _finish_reason(response: _Response) -> str:
    """In the words of chat/completions."""
    if response.status == "incomplete":
        return "length"
    return "tool_calls" if any(item.type in _CALLS for item in response.output or ()) else "stop"


def _read_event(payload: bytes) -> _Event:
    """Fields of other types than expected count as absent; only what is not JSON is refused."""
    try:
        return _decode_event(payload)
    except (msgspec.DecodeError, RecursionError):        # also of other types, and of lone surrogates: half an emoji
        return read_fitting(payload, _Event)


def _read_response(body: bytes) -> _Response:
    try:
        return _decode_response(body)
    except (msgspec.DecodeError, RecursionError):
        return read_fitting(body, _Response)
