"""The OpenAI face: chat/completions and models (model-apis.md sections 0 to 4)."""

from __future__ import annotations

from typing import Any

import msgspec
from twisted.internet.interfaces import IReactorTime

from iop.edge.models.affinity import chat_prefix
from iop.edge.models.asking import Asking, created_s
from iop.edge.models.chat import ChatBody, ChatStream
from iop.edge.models.deltas import CHAT
from iop.interfaces import IEdgeService
from iop.records import ModelEntry, RunRecord
from iop.web import strictjson
from iop.web.errors import OPENAI
from iop.web.request import Request
from iop.web.responses import Response, StreamResponse, json_response
from iop.web.route import Route


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class ChatRequest(msgspec.Struct, frozen=True):
    """What IOP itself reads of a body; the whole body travels to the backend, fields it does not know included."""

    model: str
    messages: list[Any]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    prompt_cache_key: Any = None

    @property
    def with_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


class OpenAIRoutes:
    """The model API in OpenAI's dialect."""

    def __init__(self, edge: IEdgeService, clock: IReactorTime, body_limit: int) -> None:
        self._edge = edge
        self._asking = Asking(edge, clock)
        self._body_limit = body_limit

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/v1/chat/completions", "models", self.chat, "Chat, streaming or not", body=ChatRequest, query=None,
                  body_limit=self._body_limit, dialect=OPENAI, answer="chat", streams=True,
                  errors=(404, 409, 429, 502, 503, 504), headers=("x-iop-detach", "Idempotency-Key")),
            Route("GET", "/v1/models", "models", self.models, "List the models", query=None, dialect=OPENAI,
                  answer="openai_models"),
            Route("GET", "/v1/models/{model...}", "models", self.model, "Show a model", query=None, dialect=OPENAI,
                  answer="openai_model", errors=(404,)),
        ]

    async def models(self, request: Request) -> Response:
        return json_response({"object": "list", "data": [model_json(entry) for entry in self._edge.models()]})

    async def model(self, request: Request) -> Response:
        name = request.args["model"]
        known = self._edge.models()
        for entry in known:
            if entry.name == name:
                return json_response(model_json(entry))
        adapter, target, _ = self._edge.resolve(name)
        entry = next((one for one in known if (one.adapter, one.target) == (adapter, target)), None)
        created_us = entry.created_us if entry is not None else 0
        return json_response(model_json(ModelEntry(name=name, adapter=adapter, target=target, created_us=created_us,
                                                   ready=True)))

    async def chat(self, request: Request) -> Response | StreamResponse:
        asked = strictjson.convert(strictjson.loads(request.body), ChatRequest)
        run = self._asking.run_request(request, asked.model, CHAT, cache_key=asked.prompt_cache_key,
                                       prefix=chat_prefix(asked.messages))

        def stream(record: RunRecord) -> ChatStream:
            return ChatStream(record.run_id, created_s(record), asked.model, asked.with_usage)

        def body(record: RunRecord) -> ChatBody:
            return ChatBody(record.run_id, created_s(record), asked.model)
        return await (self._asking.streamed(request, run, stream) if asked.stream else
                      self._asking.whole(request, run, body))


def model_json(entry: ModelEntry) -> dict[str, object]:
    return {"id": entry.name, "object": "model", "created": entry.created_us // 1_000_000, "owned_by": entry.adapter}
