"""The OpenAI face: chat/completions and models (model-apis.md sections 0 to 4).

::

    client --body--> submit --> (waits: queue, loading, prefill) --first output--> 200, chunks ..., [DONE]
                        |                  |                                          |
                        +--- a refusal ----+---- failed: its own status               +--- failed: an error object, no [DONE]

The client leaving stops the run in every one of these phases, unless it sent `x-iop-detach: SECONDS`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from twisted.internet.interfaces import IReactorTime

from iop.edge.chatrun import ChatAnswer
from iop.edge.routes_runs import PROGRAM_ADAPTERS, idempotency_key
from iop.errors import InvalidRequest, NoNode
from iop.interfaces import IEdgeService
from iop.proto import run_pb2
from iop.records import ModelEntry
from iop.web import strictjson
from iop.web.errors import OPENAI
from iop.web.request import Request
from iop.web.responses import Response, StreamResponse, json_response
from iop.web.route import Route

DETACH_MAX_S = 86_400


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class ChatRequest(msgspec.Struct, frozen=True):
    """What IOP itself reads of a body; the whole body travels to the backend, fields it does not know included."""

    model: str
    messages: list[Any]
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def with_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


class OpenAIRoutes:
    """The model API in OpenAI's dialect."""

    def __init__(self, edge: IEdgeService, clock: IReactorTime, body_limit: int) -> None:
        self._edge = edge
        self._clock = clock
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
        run = self._run_request(request, asked)
        answer = ChatAnswer(self._edge, self._clock, request.source, _detach_s(request))
        done = False
        try:
            await answer.begin(run, idempotency_key(request))
            response = await (answer.streamed(asked.model, asked.with_usage) if asked.stream
                              else answer.whole(asked.model))
            done = True
            return response
        finally:
            if not done:         # the client has left, or something failed: nobody will read this run
                answer.abandon()

    def _run_request(self, request: Request, asked: ChatRequest) -> run_pb2.RunRequest:
        """The run of a chat. Raises NoSuchTarget, NoNode and Forbidden."""
        adapter, target, node_id = self._edge.resolve(asked.model)
        if adapter in PROGRAM_ADAPTERS:
            request.principal.require("programs")
        if not self._is_ready(adapter, target, node_id):
            raise NoNode(f"The model {asked.model!r} is known, but no node that offers it is ready.")
        name = f"{node_id}/{adapter}/{target}" if node_id else target
        return run_pb2.RunRequest(adapter=adapter, target=name, body=request.body, api="chat/completions")

    def _is_ready(self, adapter: str, target: str, node_id: str) -> bool:
        if not node_id:
            return any(entry.ready for entry in self._edge.models() if (entry.adapter, entry.target) == (adapter, target))
        node = self._edge.node(node_id)
        return node.state == "up" and not node.draining and any(
            one.ready for one in node.targets if (one.adapter, one.target) == (adapter, target))


def model_json(entry: ModelEntry) -> dict[str, object]:
    return {"id": entry.name, "object": "model", "created": entry.created_us // 1_000_000, "owned_by": entry.adapter}


def _detach_s(request: Request) -> float | None:
    """Seconds the run may go on without its client; None: not at all."""
    text = request.header("x-iop-detach")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text[:9]) <= DETACH_MAX_S):
        raise InvalidRequest(f"x-iop-detach is a whole number of seconds, {DETACH_MAX_S} at most.")
    return float(text)
