"""One whole answer of Anthropic's Messages API out of the events of its stream (docs/adr/0012-joined-answers.md). Pure."""

from __future__ import annotations

from io import StringIO
from typing import Any

import msgspec

from iop.adapters.wire.asked import BaseReader
from iop.adapters.wire.chat import BODY_BYTES
from iop.adapters.wire.foreign_json import decode_leniently, encoded
from iop.adapters.wire.messages_reply import MessageReader, MessagesReader
from iop.errors import UpstreamError
from iop.proto.run_pb2 import RuntimeEvent

# What each kind of delta grows, in the block it belongs to; of what is not known, each field's last word counts.
_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


class WholeMessage:
    """Takes events; `body()` is the answer that the backend would have given."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._size = 0
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._grown: dict[int, dict[str, StringIO]] = {}

    def add(self, payload: bytes) -> None:
        """Raises UpstreamError for what is too long."""
        self._size += len(payload)
        if self._size > 4 * self._limit:         # an event of 120 bytes tells a token of 4
            raise UpstreamError(f"The backend's reply has more than {self._limit} bytes, which is the limit of one.")
        try:
            event = msgspec.json.decode(payload)
        except (msgspec.DecodeError, RecursionError):
            event = decode_leniently(payload)
        if isinstance(event, dict):
            self._add(event)

    def _add(self, event: dict[str, Any]) -> None:
        match event:
            case {"type": "message_start", "message": dict(message)}:
                self._message |= message
            case {"type": "message_delta"}:
                self._message_delta(event)
            case {"type": "content_block_start", "index": int(index), "content_block": dict(block)}:
                self._blocks[index] = block
            case {"type": "content_block_delta", "index": int(index), "delta": dict(delta)} if index in self._blocks:
                self._grow(index, delta)

    def _message_delta(self, event: dict[str, Any]) -> None:
        """Besides `delta` and `usage` it may have fields of the message's own."""
        for name, value in event.items():
            if name == "usage" and isinstance(value, dict):
                told = self._message.get("usage")
                self._message["usage"] = (told if isinstance(told, dict) else {}) | value
            elif name == "delta" and isinstance(value, dict):
                self._message |= value
            elif name not in ("type", "usage", "delta"):
                self._message[name] = value

    def _grow(self, index: int, delta: dict[str, Any]) -> None:
        block, kind = self._blocks[index], str(delta.get("type"))
        field = _TEXTS.get(kind)
        if field is not None:
            grown = self._grown.setdefault(index, {}).setdefault(field, StringIO())
            grown.write(str(delta.get(field) or ""))
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta.get("citation")]
        else:
            block |= {name: value for name, value in delta.items() if name != "type"}

    def body(self) -> bytes:
        """Raises UpstreamError unless it was told why the model stopped."""
        if not self._message.get("stop_reason"):
            raise UpstreamError("The backend's stream ended without a stop_reason; it may be cut.", status=200)
        content = [self._filled(index) for index in sorted(self._blocks)]
        return encoded(self._message | {"content": content})

    def _filled(self, index: int) -> dict[str, Any]:
        block = self._blocks[index]
        for field, grown in self._grown.get(index, {}).items():
            text = grown.getvalue()
            if field != "partial_json":
                block[field] = str(block.get(field) or "") + text
                continue
            try:
                block["input"] = msgspec.json.decode(text) if text.strip() else {}
            except (msgspec.DecodeError, RecursionError):
                block["input"] = {"INVALID_JSON": text}      # as docs/adr/0023-messages.md says
        if block.get("type") == "tool_use":
            block.setdefault("input", {})
        return block


class JoiningMessageReader(BaseReader):
    """A reply that streams, told as if it did not: one output event, whose raw is the whole answer."""

    media_type = MessagesReader.media_type
    told_as = MessageReader.media_type

    def __init__(self, limit_bytes: int = BODY_BYTES) -> None:
        super().__init__()
        self._stream = MessagesReader()
        self._whole = WholeMessage(limit_bytes)

    def feed(self, data: bytes) -> list[RuntimeEvent]:
        return self._joined(self._stream.feed(data))

    def finish(self) -> list[RuntimeEvent]:
        return self._joined(self._stream.finish())

    def _joined(self, events: list[RuntimeEvent]) -> list[RuntimeEvent]:
        for event in events:
            self._whole.add(event.raw)
        stream = self._stream
        self.heard, self.fault = stream.heard, stream.fault
        if not stream.done or self.done:
            return []
        reader = MessageReader()
        reader.feed(self._whole.body())
        told = reader.finish()
        self.done, self.finish_reason, self.usage = True, reader.finish_reason, reader.usage
        return told
