"""OpenAI's embeddings at Ollama: the request as one of api/embed, and its reply told back. Pure."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from typing import Any

import msgspec

from iop.adapters.wire.chat import WholeReader
from iop.adapters.wire.refusals import error_text
from iop.adapters.wire.tokens import usage_of
from iop.errors import InvalidRequest, UpstreamError
from iop.proto.run_pb2 import RuntimeEvent, Usage


class _Reply(msgspec.Struct):
    embeddings: list[list[float]] | None = None
    prompt_eval_count: int | None = None


def embed_body(body: Mapping[str, Any], model: str, options: Mapping[str, Any],
               keep_alive: str | int | None) -> dict[str, Any]:
    """Raises InvalidRequest for what Ollama cannot do."""
    texts = body.get("input")
    if not isinstance(texts, str) and not (isinstance(texts, list) and all(isinstance(text, str) for text in texts)):
        raise InvalidRequest("`input` must be a text or a list of texts; this backend takes no lists of tokens.")
    if body.get("encoding_format") not in (None, "float", "base64"):
        raise InvalidRequest("`encoding_format` must be float or base64.")
    asked: dict[str, Any] = {"model": model, "input": texts}
    if body.get("dimensions") is not None:
        asked["dimensions"] = body["dimensions"]
    if options:
        asked["options"] = dict(options)
    if keep_alive is not None:
        asked["keep_alive"] = keep_alive
    return asked


class EmbedReader(WholeReader):
    """A reply of api/embed as it is."""

    def finish(self) -> list[RuntimeEvent]:
        [event] = super().finish()
        self._numbers(event.raw)
        return [event]

    def _numbers(self, raw: bytes) -> list[list[float]]:
        try:
            reply = msgspec.json.decode(raw, type=_Reply)
        except (msgspec.DecodeError, RecursionError):
            raise UpstreamError("The backend's reply is not one of Ollama's api/embed.") from None
        if reply.embeddings is None:
            raise UpstreamError(f"The backend answered without embeddings. {error_text(raw)}".strip(), body=raw[:65536])
        self.usage = usage_of(reply.prompt_eval_count)
        return reply.embeddings


class EmbeddingsReader(EmbedReader):
    """A reply of api/embed as one of OpenAI's embeddings."""

    def __init__(self, model: str, *, as_base64: bool) -> None:
        super().__init__()
        self._model = model
        self._as_base64 = as_base64

    def finish(self) -> list[RuntimeEvent]:
        [event] = WholeReader.finish(self)
        data = [{"object": "embedding", "index": index, "embedding": self._told(numbers)}
                for index, numbers in enumerate(self._numbers(event.raw))]
        usage = self.usage or Usage()
        event.raw = msgspec.json.encode({"object": "list", "data": data, "model": self._model, "usage": {
            "prompt_tokens": usage.prompt_tokens, "total_tokens": usage.total_tokens}})
        return [event]

    def _told(self, numbers: list[float]) -> list[float] | str:
        if not self._as_base64:
            return numbers
        return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode("ascii")
