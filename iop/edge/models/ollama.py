"""A run told in Ollama's own API: lines of JSON, the last of them with `done: true`. Pure.

Format: docs/api.md of ollama/ollama and its Python client 0.6.3 (read 2026-12). Durations are nanoseconds. Where the backend
is an Ollama its lines pass as they came.
"""

from __future__ import annotations

from typing import Any

import msgspec

from iop.edge.models.deltas import CallBegin, CallPiece, Delta, Deltas, Reasoning, Text
from iop.edge.models.ending import Ending
from iop.edge.models.foreign_json import read_as, read_object
from iop.errors import InvalidRequest
from iop.events import json_encode, rfc3339
from iop.modelapis import OLLAMA_CHAT, OLLAMA_EMBED
from iop.proto.run_pb2 import Usage
from iop.records import RunRecord
from iop.web.responses import JSON

NDJSON = "application/x-ndjson"
_RAWS = "ndjson"                 # the name of what is made of a batch of raws


class _OllamaTeller:
    """What a stream and a whole answer share: the fields of a line, and the counts at the end."""

    def __init__(self, record: RunRecord, model: str, api: str) -> None:
        self._deltas = Deltas(api)
        self.ending = self._deltas.ending
        self._model = model
        self._is_chat = api == OLLAMA_CHAT
        self._created_us = record.created_us
        self._first_us = 0           # of the first output
        self._calls: dict[int, dict[str, Any]] = {}

    def _read(self, entry: Any) -> list[Delta]:
        deltas = self._deltas.read(entry)
        if deltas and not self._first_us:
            self._first_us = entry.batch.events[-1].at_us
        return deltas

    def _line(self, at_us: int, spoken: dict[str, object], **more: object) -> dict[str, object]:
        """`spoken` has `content` and, where there are any, `thinking` and `tool_calls`."""
        told: dict[str, object] = {"message": {"role": "assistant"} | spoken}
        if not self._is_chat:
            told = {"response": spoken.pop("content")} | spoken
        return {"model": self._model, "created_at": rfc3339(at_us), **told, "done": False, **more}

    def _call(self, delta: CallBegin | CallPiece) -> None:
        match delta:
            case CallBegin(index, call_id, name):
                self._calls[index] = {"id": call_id, "function": {"index": index, "name": name, "arguments": ""}}
            case CallPiece(index, arguments):
                self._calls[index]["function"]["arguments"] += arguments

    def _called(self) -> dict[str, object]:
        """The calls, which this API tells whole: with their arguments as an object."""
        for call in self._calls.values():
            call["function"]["arguments"] = _arguments(call["function"]["arguments"])
        return {"tool_calls": list(self._calls.values())} if self._calls else {}

    def _last(self, spoken: dict[str, object]) -> dict[str, object]:
        ending, usage = self.ending, self.ending.tokens or Usage()
        began_us = ending.started_us or self._created_us
        first_us = self._first_us or ending.ended_us
        load_ns, prompt_ns, eval_ns = _ns(self._created_us, began_us), _ns(began_us, first_us), _ns(first_us, ending.ended_us)
        return self._line(ending.ended_us, spoken) | {
            "done": True, "done_reason": "length" if ending.finish_reason == "length" else "stop",
            "total_duration": load_ns + prompt_ns + eval_ns, "load_duration": load_ns,
            "prompt_eval_count": usage.prompt_tokens, "prompt_eval_duration": prompt_ns,
            "eval_count": usage.completion_tokens, "eval_duration": eval_ns}


def _ns(start_us: int, stop_us: int) -> int:
    return max(0, stop_us - start_us) * 1000


def _arguments(text: str) -> object:
    value = read_object(text or "{}")
    return {"arguments": text} if value is None else value       # of a model that was cut short, mostly


class OllamaStream(_OllamaTeller):
    """A streaming answer of api/chat or api/generate."""

    media_type = NDJSON

    def __init__(self, record: RunRecord, model: str, api: str) -> None:
        super().__init__(record, model, api)
        # Its clients decode every line, so that an empty one would be a fault: a line that says nothing is the heartbeat.
        self.heartbeat = json_encode(self._line(record.created_us, {"content": ""})) + b"\n"

    def write(self, entry: Any) -> bytes:
        deltas = self._read(entry)
        if self._deltas.native:
            return _raw_lines(entry)
        at_us = entry.batch.events[-1].at_us
        return b"".join([line for delta in deltas if (line := self._delta(at_us, delta))])

    def _delta(self, at_us: int, delta: Delta) -> bytes:
        match delta:
            case Text(text):
                spoken: dict[str, object] = {"content": text}
            case Reasoning(text):
                spoken = {"content": "", "thinking": text}
            case CallBegin() | CallPiece():
                self._call(delta)
                return b""
            case _:
                return b""
        return json_encode(self._line(at_us, spoken)) + b"\n"

    def end(self) -> bytes:
        if not self.ending.completed:
            return json_encode(self.ending.error_json()) + b"\n"
        if self._deltas.native:
            return b""
        return json_encode(self._last({"content": "", **self._called()})) + b"\n"


def _raw_lines(entry: Any) -> bytes:
    made: bytes | None = entry.dialects.get(_RAWS)
    if made is None:
        raws = [event.raw for event in entry.batch.events if event.raw]
        made = entry.dialects[_RAWS] = b"\n".join([*raws, b""])
    return made


class OllamaBody(_OllamaTeller):
    """An answer of api/chat or api/generate in one piece."""

    media_type = JSON

    def __init__(self, record: RunRecord, model: str, api: str) -> None:
        super().__init__(record, model, api)
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._kept = 0
        self.size = 0

    def read(self, entry: Any) -> None:
        for delta in self._read(entry):
            match delta:
                case Text(text):
                    self._text.append(text)
                    self._kept += len(text)
                case Reasoning(text):
                    self._thinking.append(text)
                    self._kept += len(text)
                case CallBegin() | CallPiece():
                    self._call(delta)
        self.size = self._kept + len(self._deltas.whole)

    def body(self) -> bytes:
        if self._deltas.native:
            return self._deltas.whole
        spoken: dict[str, object] = {"content": "".join(self._text)}
        if self._thinking:
            spoken["thinking"] = "".join(self._thinking)
        return json_encode(self._last(spoken | self._called()))


class EmbedBody:
    """Embeddings, from an Ollama or from a backend with OpenAI's API. `old`: told as the older api/embeddings does."""

    media_type = JSON

    def __init__(self, record: RunRecord, model: str, old: bool) -> None:
        self._deltas = Deltas(OLLAMA_EMBED)
        self.ending: Ending = self._deltas.ending
        self._model = model
        self._old = old
        self._created_us = record.created_us
        self._raws: list[bytes] = []
        self.size = 0

    def read(self, entry: Any) -> None:
        self._deltas.read(entry)
        for event in entry.batch.events:
            if event.HasField("output"):
                self._raws.append(event.raw)
                self.size += len(event.raw)

    def body(self) -> bytes:
        raw = b"".join(self._raws)
        if self._deltas.native and not self._old:
            return raw
        vectors = self._vectors(raw)
        if self._old:
            return json_encode({"embedding": vectors[0] if vectors else []})
        usage = self.ending.tokens or Usage()
        return json_encode({"model": self._model, "embeddings": vectors,
                            "total_duration": _ns(self._created_us, self.ending.ended_us),
                            "load_duration": _ns(self._created_us, self.ending.started_us or self._created_us),
                            "prompt_eval_count": usage.prompt_tokens})

    def _vectors(self, raw: bytes) -> list[msgspec.Raw]:
        """The vectors as the backend wrote them, in order."""
        reply = read_as(_embeddings, raw)
        if reply is None:
            raise InvalidRequest(f"The model {self._model[:100]!r} does not answer with embeddings.")
        if reply.data:
            return [item.embedding for item in sorted(reply.data, key=lambda item: item.index)]
        return reply.embeddings


class _Embedding(msgspec.Struct):
    embedding: msgspec.Raw
    index: int = 0


class _Embeddings(msgspec.Struct):
    embeddings: list[msgspec.Raw] = []       # Ollama's
    data: list[_Embedding] = []              # OpenAI's


_embeddings = msgspec.json.Decoder(_Embeddings).decode
