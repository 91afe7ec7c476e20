"""Ollama by its native API; all other model APIs are told in it, so that every face works for these targets too.

Ollama's own /v1 is not used: it knows neither `options` (num_ctx above all: without it a long prompt is cut in silence) nor
`keep_alive`, and it leaves out the durations by which loading can be told from answering.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
from twisted.internet.defer import Deferred
from twisted.plugin import IPlugin
from zope.interface import implementer

from iop.adapters.wire.asked import Asked
from iop.adapters.wire.context import shown_context
from iop.adapters.wire.model_adapter import ModelAdapter, ModelFactory
from iop.adapters.wire.model_settings import ModelSettings
from iop.adapters.wire.ollama import NativeReader, OpenAIReader
from iop.adapters.wire.ollama_embed import EmbeddingsReader, EmbedReader, embed_body
from iop.adapters.wire.ollama_models import Pull, keep
from iop.adapters.wire.requests import decoded
from iop.adapters.wire.to_ollama import from_openai, request_body, to_messages, unsaid
from iop.adapters.wire.translators import can_be_translated, translated
from iop.errors import InvalidRequest, IOPError, UpstreamError
from iop.interfaces import IAdapterFactory, IModels
from iop.modelapis import CHAT, EMBEDDINGS, OLLAMA, OLLAMA_CHAT, OLLAMA_EMBED
from iop.proto.run_pb2 import RunRequest
from iop.servers import TargetHealth


class OllamaSettings(ModelSettings):
    """A model at an Ollama server. `options` are Ollama's own, a request's win."""

    serve_base: ClassVar[str] = ""
    serve_health: ClassVar[str] = "/api/version"

    url: str = "http://127.0.0.1:11434"
    keep_alive: str | int | None = None
    options: dict[str, Any] = {}
    first_byte_s: float = 300.0      # a cold model is read from disk first


@implementer(IModels)
class OllamaAdapter(ModelAdapter):
    """The targets of one node at Ollama servers."""

    def _request(self, request: RunRequest, settings: OllamaSettings) -> Asked:
        kind = request.WhichOneof("input")
        if kind == "body":
            return _body_request(request, settings)
        if kind == "messages":
            messages = to_messages(_messages(request.messages))
        elif kind == "prompt":
            messages = [{"role": "user", "content": request.prompt}]
        else:
            raise InvalidRequest("The run has no input; give a prompt, messages or a body.")
        body = request_body(settings.model, messages, settings.options, settings.keep_alive)
        return Asked(OLLAMA_CHAT, msgspec.json.encode(body), (NativeReader(),))

    def load(self, target: str, url: str) -> Deferred[None]:
        settings = self._targets[target]
        return Deferred.fromCoroutine(keep(self._client(settings), url or settings.url, settings.model, settings.keep_alive))

    def unload(self, target: str, url: str) -> Deferred[None]:
        settings = self._targets[target]
        return Deferred.fromCoroutine(keep(self._client(settings), url or settings.url, settings.model, 0))

    def pull(self, target: str, url: str, model: str, told: Callable[[str, float], None]) -> Deferred[None]:
        settings = self._targets[target]
        return Pull(self._client(settings), url or settings.url, model, told).done

    def _check(self, settings: OllamaSettings) -> Deferred[TargetHealth]:
        return Deferred.fromCoroutine(self._look(settings))

    async def _look(self, settings: OllamaSettings) -> TargetHealth:
        """Whether it has the model, and whether that is in memory."""
        client, asked = self._client(settings), msgspec.json.encode({"model": settings.model})
        try:
            status, shown = await client.fetch(f"{settings.url}/api/show", {}, asked, within_s=2.4)
            if status == 404:
                return TargetHealth(f"Ollama has no model {settings.model}; `iop node pull {settings.model}` gets it.")
            if status != 200:
                return TargetHealth(f"The backend at {settings.url} answers {status} to /api/show.")
            status, loaded = await client.fetch(f"{settings.url}/api/ps", {}, within_s=2.0)
        except IOPError as error:
            return TargetHealth(error.message)
        warm = any(name in _names(loaded) for name in (settings.model, f"{settings.model}:latest")) if status == 200 else None
        return TargetHealth(warm=warm, context_tokens=shown_context(shown, settings.options))


def _names(body: bytes) -> set[str]:
    try:
        found = msgspec.json.decode(body)
        return {model["name"] for model in found["models"]}
    except (msgspec.DecodeError, KeyError, TypeError):
        return set()


def _body_request(request: RunRequest, settings: OllamaSettings) -> Asked:
    if request.content_type and "json" not in request.content_type:
        raise UpstreamError("Ollama takes no forms.", status=404)
    body = decoded(request.body)
    api = request.api or CHAT
    if api in OLLAMA:
        return _native(api, body, settings)
    if api == EMBEDDINGS:
        asked = msgspec.json.encode(embed_body(body, settings.model, settings.options, settings.keep_alive))
        reader = EmbeddingsReader(settings.model, as_base64=body.get("encoding_format") == "base64")
        return Asked(OLLAMA_EMBED, asked, (reader,))
    if api == CHAT:
        return _chat(request, body, settings)
    if not can_be_translated(api):
        raise UpstreamError(f"Ollama has no API {api[:80]}.", status=404)
    told = translated(api, body, settings.model)
    asked = _chat(request, told.body, settings)
    return asked._replace(api=CHAT, warnings=told.warnings + asked.warnings)


def _native(api: str, body: dict[str, Any], settings: OllamaSettings) -> Asked:
    """The body whole but for the model, and what the target's settings say where the request says nothing."""
    body["model"] = settings.model
    if settings.options:
        asked = body.get("options")
        body["options"] = settings.options | (asked if isinstance(asked, dict) else {})
    if settings.keep_alive is not None:
        body.setdefault("keep_alive", settings.keep_alive)
    reader = EmbedReader() if api == OLLAMA_EMBED else NativeReader(streams=body.get("stream") is not False)
    return Asked(api, msgspec.json.encode(body), (reader,))


def _chat(request: RunRequest, body: dict[str, Any], settings: OllamaSettings) -> Asked:
    native = from_openai(body, settings.model, settings.options, settings.keep_alive)
    reader = OpenAIReader(request.run_id, request.created_us // 1_000_000, settings.model, streams=native["stream"])
    return Asked(OLLAMA_CHAT, msgspec.json.encode(native), (reader,), warnings=unsaid(body))


def _messages(data: bytes) -> list[dict[str, Any]]:
    try:
        return msgspec.json.decode(data, type=list[dict[str, Any]])
    except (msgspec.DecodeError, RecursionError):
        raise InvalidRequest("`messages` must be a JSON list of messages.") from None


@implementer(IPlugin, IAdapterFactory)
class OllamaFactory(ModelFactory):
    """`ollama`: see the module."""

    name: ClassVar[str] = "ollama"
    default_concurrency: ClassVar[int] = 4       # more than Ollama runs at once would wait inside it
    kind: ClassVar[type[OllamaSettings]] = OllamaSettings
    adapter: ClassVar[type[OllamaAdapter]] = OllamaAdapter


factory = OllamaFactory()
