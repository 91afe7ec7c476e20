"""One whole answer of the chat/completions and completions APIs out of the chunks of its stream. Pure.

A backend is asked to stream also for a client that does not: only so does it notice soon that nobody waits any more. What
comes out is what it would have answered by itself, but for what docs/adr/0012-joined-answers.md names.
"""

from __future__ import annotations

from typing import Any

from iop.adapters.wire.chat import BODY_BYTES
from iop.adapters.wire.chat_whole import ChatReader
from iop.adapters.wire.foreign_json import encoded, read_object
from iop.adapters.wire.lines import EventSplitter
from iop.adapters.wire.pieces import Row
from iop.adapters.wire.refusals import error_told
from iop.errors import UpstreamError
from iop.modelapis import CHAT
from iop.proto.run_pb2 import RuntimeEvent

_INSTEAD = ("tool_calls", "function_call", "refusal", "audio")     # what a message without content has
_NOTHING = (None, "", [], {})                                      # an empty chunk keeps a connection alive
_PADDING = "obfuscation"                                           # random letters in OpenAI's chunks, of no meaning


class WholeAnswer:
    """Takes chunks; `body()` is the answer. What it holds stays under twice `limit_bytes`; the body is not measured."""

    def __init__(self, limit_bytes: int = BODY_BYTES) -> None:
        self._limit = limit_bytes
        self._at_most = 0                # bytes of what is held: the sum of the chunks, and exact once that is too much
        self._fields: dict[str, Any] = {}
        self._choices = Row()

    def add(self, payload: bytes) -> bool:
        """Whether the chunk says anything. Raises UpstreamError for the backend's own error, for what cannot be read and
        for what is too long."""
        chunk = read_object(payload)
        error = chunk.pop("error", None)
        if error is not None:
            raise error_told("The backend ended its stream with an error:", error, payload)
        choices = chunk.pop("choices", None)
        for name, value in chunk.items():
            if value is not None or name not in self._fields:
                self._fields[name] = value
        found = [{"index": 0} | choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []
        said = "usage" in chunk and not found or any(map(_says_something, found))
        self._choices.add(found)
        self._measure(len(payload))
        return said

    def _measure(self, size: int) -> None:
        """A token of 4 bytes comes in a chunk of 200: the sum alone would refuse answers far below the limit."""
        self._at_most += size
        if self._at_most > 2 * self._limit:
            self._at_most = len(encoded([self._choices.whole(), self._fields]))
            if self._at_most > self._limit:
                raise UpstreamError(f"The backend's reply has more than {self._limit} bytes, which is the limit of one.")

    def body(self) -> bytes:
        """A finish_reason that was not told is null."""
        choices = [{"finish_reason": None} | _choice(found) for found in self._choices.whole()]
        fields = {name: value for name, value in self._fields.items() if name != _PADDING}
        if isinstance(fields.get("object"), str):
            fields["object"] = fields["object"].removesuffix(".chunk")
        return encoded(fields | {"choices": choices})


def _says_something(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta")
    return bool(choice.get("finish_reason") or choice.get("text") or isinstance(delta, dict)
                and any(value not in _NOTHING for name, value in delta.items() if name != "role"))


def _choice(found: dict[str, Any]) -> dict[str, Any]:
    delta = found.pop("delta", None)
    if delta is None and ("text" in found or "message" in found):
        return found
    return found | {"message": _message(delta if isinstance(delta, dict) else {})}


def _message(delta: dict[str, Any]) -> dict[str, Any]:
    """As OpenAI has it: content is null where something else stands for it; calls have no index."""
    message = {"role": "assistant", "content": ""} | delta
    message["content"] = message["content"] or (None if any(delta.get(name) for name in _INSTEAD) else "")
    for call in delta.get("tool_calls") or ():
        if isinstance(call, dict):
            call.pop("index", None)
    return message


class JoiningReader(ChatReader):
    """A reply that streams, told as if it did not: one output event, whose raw is the whole answer."""

    media_type = b"text/event-stream"
    told_as = ChatReader.media_type

    def __init__(self, limit_bytes: int = BODY_BYTES, api: str = CHAT) -> None:
        super().__init__(limit_bytes, api)
        self._splitter = EventSplitter()
        self._answer = WholeAnswer(limit_bytes)

    def feed(self, data: bytes) -> list[RuntimeEvent]:
        return self._joined(self._splitter.feed(data))

    def finish(self) -> list[RuntimeEvent]:
        return self._joined(self._splitter.finish())

    def _joined(self, payloads: list[bytes]) -> list[RuntimeEvent]:
        try:
            return self._told(payloads)
        except RecursionError:
            raise UpstreamError("The backend sent a chunk that is nested too deep.") from None

    def _told(self, payloads: list[bytes]) -> list[RuntimeEvent]:
        """The answer, once the end's marker is among the payloads; what follows that is not looked at."""
        for payload in payloads:
            if payload[:6] == b"[DONE]" and not self.done:
                super().feed(self._answer.body())
                return super().finish()
            if payload and not self.done:
                self.heard += self._answer.add(payload)
        return []
