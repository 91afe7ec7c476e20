"""The Ollama face: what its clients take for an Ollama server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from iop.edge.models.affinity import chat_prefix
from iop.edge.models.asking import RUN_HEADERS, Asking
from iop.edge.models.listing import ModelName
from iop.edge.models.ollama import EmbedBody, OllamaBody, OllamaStream
from iop.edge.models.ollama_listing import VERSION, known_name, loaded, shown, tags
from iop.edge.models.routes_listing import find, usable
from iop.errors import InvalidRequest
from iop.events import json_encode, now_us, rfc3339
from iop.interfaces import IEdgeService
from iop.modelapis import OLLAMA_CHAT, OLLAMA_EMBED, OLLAMA_GENERATE
from iop.records import RunRecord
from iop.web.errors import OLLAMA, NotOffered
from iop.web.request import Request
from iop.web.responses import Response, StreamResponse, json_response
from iop.web.route import PUBLIC, RUN_ERRORS, Route

LOADS = "ollama"             # the adapter whose backends load a model when they are asked nothing
# What changes the models of a machine is done on that machine, or by an order to its node.
ELSEWHERE = (("POST", "/api/pull"), ("POST", "/api/push"), ("POST", "/api/create"), ("POST", "/api/copy"),
             ("DELETE", "/api/delete"), ("POST", "/api/blobs/{digest}"))


class OllamaChat(msgspec.Struct, frozen=True):
    """What IOP itself reads of a body; the rest is the backend's."""

    model: ModelName
    messages: list[Any] | None = None
    stream: bool | None = None       # as with Ollama, null is true


class OllamaGenerate(msgspec.Struct, frozen=True):
    model: ModelName
    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    stream: bool | None = None


class OllamaEmbed(msgspec.Struct, frozen=True):
    model: ModelName
    input: str | list[str] | None = None


class OllamaEmbedding(msgspec.Struct, frozen=True):
    model: ModelName
    prompt: str = ""
    options: Any = None
    keep_alive: Any = None


class OllamaShow(msgspec.Struct, frozen=True):
    """The model's name: `name` is its older field."""

    model: str = ""
    name: str = ""


class OllamaRoutes:
    """Ollama's API."""

    def __init__(self, edge: IEdgeService, asking: Asking, body_limit: int) -> None:
        self._edge = edge
        self._asking = asking
        self._body_limit = body_limit

    def routes(self) -> list[Route]:
        return [
            self._run("chat", self.chat, "Chat, streaming unless told otherwise", OllamaChat, streams=True),
            self._run("generate", self.generate, "Complete a prompt", OllamaGenerate, streams=True),
            self._run("embed", self.embed, "Embed texts", OllamaEmbed),
            self._run("embeddings", self.embeddings, "Embed a text, the older way", OllamaEmbedding),
            _route("GET", "/api/tags", self.tags, "List the models"),
            _route("GET", "/api/ps", self.ps, "List the models in memory"),
            _route("POST", "/api/show", self.show, "Show a model", body=OllamaShow, errors=(404,)),
            Route("GET", "/api/version", PUBLIC, self.version, "The version of Ollama's API", query=None, dialect=OLLAMA),
            Route("GET", "/", PUBLIC, self.running, "Whether somebody is here", query=None, dialect=OLLAMA, answer="text",
                  media="text/plain"),
            *[_route(method, path, _elsewhere, "Not here: models are managed on their nodes", errors=(404,))
              for method, path in ELSEWHERE],
        ]

    def _run(self, name: str, handler: Any, summary: str, body: type[msgspec.Struct], streams: bool = False) -> Route:
        return Route("POST", f"/api/{name}", "models", handler, summary, body=body, query=None, body_limit=self._body_limit,
                     dialect=OLLAMA, streams=streams, errors=RUN_ERRORS,
                     headers=RUN_HEADERS)

    async def chat(self, request: Request) -> Response | StreamResponse:
        asked = request.json(OllamaChat)
        prefix = chat_prefix(asked.messages or ())
        return await self._answer(request, asked, OLLAMA_CHAT, prefix, empty=not asked.messages)

    async def generate(self, request: Request) -> Response | StreamResponse:
        asked = request.json(OllamaGenerate)
        prefix = [part for part in (asked.system, asked.prompt) if part]
        return await self._answer(request, asked, OLLAMA_GENERATE, prefix, empty=not (asked.prompt or asked.suffix))

    async def _answer(self, request: Request, asked: OllamaChat | OllamaGenerate, api: str, prefix: Any,
                      empty: bool) -> Response | StreamResponse:
        name = known_name(self._edge, asked.model)
        run = self._asking.run_request(request, name, api, prefix=prefix)
        if empty and self._edge.resolve(name)[0] != LOADS:       # a request to load the model, which is its node's affair
            return json_response(_load_reply(asked.model, api))

        def stream(record: RunRecord) -> OllamaStream:
            return OllamaStream(record, asked.model, api)

        def body(record: RunRecord) -> OllamaBody:
            return OllamaBody(record, asked.model, api)
        return await self._asking.answered(request, run, asked.stream is not False, stream, body)

    async def embed(self, request: Request) -> Response | StreamResponse:
        asked = request.json(OllamaEmbed)
        return await self._embedded(request, asked.model, request.body, old=False)

    async def embeddings(self, request: Request) -> Response | StreamResponse:
        asked = request.json(OllamaEmbedding)
        body = {"model": asked.model, "input": asked.prompt, "options": asked.options, "keep_alive": asked.keep_alive}
        told = json_encode({name: value for name, value in body.items() if value is not None})
        return await self._embedded(request, asked.model, told, old=True)

    async def _embedded(self, request: Request, model: str, body: bytes, old: bool) -> Response | StreamResponse:
        run = self._asking.run_request(request, known_name(self._edge, model), OLLAMA_EMBED, programs=False)
        run.body = body
        return await self._asking.whole(request, run, lambda record: EmbedBody(record, model, old))

    async def tags(self, request: Request) -> Response:
        return json_response(tags(usable(self._edge, request)))

    async def ps(self, request: Request) -> Response:
        return json_response(loaded(usable(self._edge, request)))

    async def show(self, request: Request) -> Response:
        asked = request.json(OllamaShow)
        if not (asked.model or asked.name):
            raise InvalidRequest("The request has no `model`.")
        return json_response(shown(find(self._edge, request, known_name(self._edge, asked.model or asked.name))))

    async def version(self, request: Request) -> Response:
        return json_response({"version": VERSION})

    async def running(self, request: Request) -> Response:
        """The words by which Ollama's clients know it; claude probes this path as well."""
        return Response(200, b"Ollama is running", "text/plain; charset=utf-8")


def _route(method: str, path: str, handler: Callable[[Request], Awaitable[Response]], summary: str, **more: Any) -> Route:
    return Route(method, path, "models", handler, summary, query=None, dialect=OLLAMA, **more)


async def _elsewhere(request: Request) -> Response:
    raise NotOffered(f"{request.path[:100]} is not offered here: models are managed on the nodes that have them.",
                     hint="Pull or remove it on its machine; `iop nodes` shows which one.")


def _load_reply(model: str, api: str) -> dict[str, object]:
    spoken: dict[str, object] = {"message": {"role": "assistant", "content": ""}} if api == OLLAMA_CHAT else {"response": ""}
    return {"model": model, "created_at": rfc3339(now_us()), **spoken, "done": True, "done_reason": "load"}
