"""Replies that IOP only carries: bytes of any type as they come, and replies whose type says too little. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iop.adapters.wire.asked import BaseReader, Reader
from iop.adapters.wire.chat import StreamReader
from iop.adapters.wire.chat_whole import ChatReader
from iop.adapters.wire.foreign_json import encoded, read_object
from iop.events import now_us
from iop.proto.run_pb2 import CHANNEL_TEXT, RuntimeEvent

SLOPPY = frozenset((b"", b"text/plain", b"application/octet-stream", b"text/json"))
_BLANK = b" \t\r\n\xef\xbb\xbf"


class PassingReader(BaseReader):
    """Sound, pictures, subtitles: what is read is told as `raw`. That all has come is for HTTP's own framing to prove."""

    media_type = b"*/*"

    def takes(self, media_type: bytes) -> bool:
        return media_type != b"text/html"        # a proxy's own page is no answer of a model

    def feed(self, data: bytes) -> list[RuntimeEvent]:
        self.heard += len(data)
        return [RuntimeEvent(at_us=now_us(), channel=CHANNEL_TEXT, output="", raw=data)]

    def finish(self) -> list[RuntimeEvent]:
        self.done = True
        return []


class SloppyReader(BaseReader):
    """A reply whose type names neither JSON nor a stream: its first byte tells which of two readers it is for."""

    def __init__(self, stream: Callable[[], Reader], whole: Callable[[], Reader], told_as: bytes, also: bytes = b"") -> None:
        super().__init__()
        self._also = also                        # a type that comes though it was not asked for
        self._kinds = stream, whole
        self._chosen: Reader | None = None
        self.media_type = self.told_as = told_as

    def takes(self, media_type: bytes) -> bool:
        return media_type in SLOPPY or media_type == self._also != b""

    def feed(self, data: bytes) -> list[RuntimeEvent]:
        if self._chosen is None:
            data = data.lstrip(_BLANK)
            if not data:
                return []
            self._chosen = self._kinds[data[:1] in (b"{", b"[")]()
        return self._told(self._chosen.feed(data), self._chosen)

    def finish(self) -> list[RuntimeEvent]:
        return self._told(self._chosen.finish(), self._chosen) if self._chosen is not None else []

    def _told(self, found: list[RuntimeEvent], chosen: Reader) -> list[RuntimeEvent]:
        self.done, self.fault, self.heard = chosen.done, chosen.fault, chosen.heard
        self.finish_reason, self.usage = chosen.finish_reason, chosen.usage
        return found


class UnstreamedReader(ChatReader):
    """A whole answer where a stream was asked for: told as the chunks that it would have been; an error stays one."""

    told_as = StreamReader.media_type

    def finish(self) -> list[RuntimeEvent]:
        [whole] = super().finish()
        fields = read_object(whole.raw)
        usage = fields.pop("usage", None)
        if fields.get("object") == "chat.completion":
            fields["object"] = "chat.completion.chunk"
        fields["choices"] = [_as_chunk(choice) for choice in fields.get("choices") or () if isinstance(choice, dict)]
        told = [RuntimeEvent(at_us=whole.at_us, channel=whole.channel, output=whole.output, raw=encoded(fields))]
        if usage is not None:
            told.append(RuntimeEvent(at_us=whole.at_us, usage=self.usage,
                                     raw=encoded(fields | {"choices": [], "usage": usage})))
        return told


def _as_chunk(choice: dict[str, Any]) -> dict[str, Any]:
    message = choice.pop("message", None)
    if not isinstance(message, dict):
        return choice
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        message["tool_calls"] = [{"index": index} | call for index, call in enumerate(calls) if isinstance(call, dict)]
    return choice | {"delta": message}
