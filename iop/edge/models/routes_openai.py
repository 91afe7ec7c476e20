"""The OpenAI face: chat/completions, completions, and what passes as it came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from iop.edge.models.affinity import chat_prefix
from iop.edge.models.asking import RUN_HEADERS, Asking, created_s
from iop.edge.models.chat import ChatBody, ChatStream, empty_delta
from iop.edge.models.completions import CompletionBody, CompletionStream, empty_piece
from iop.edge.models.listing import ModelName
from iop.modelapis import CHAT, COMPLETIONS
from iop.records import RunRecord
from iop.web.errors import OPENAI
from iop.web.request import Request
from iop.web.responses import Response, StreamResponse
from iop.web.route import RUN_ERRORS, Route
from iop.web.sse import COMMENT

CHUNKS = "chunks"            # the setting for heartbeats that clients count as output


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class _Streaming(msgspec.Struct, frozen=True, kw_only=True):
    model: ModelName
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    prompt_cache_key: Any = None

    @property
    def with_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


class ChatRequest(_Streaming, frozen=True, kw_only=True):
    """What IOP itself reads of a body; the whole body travels to the backend, fields it does not know included."""

    messages: list[Any]


class CompletionRequest(_Streaming, frozen=True, kw_only=True):
    """As a chat's; `prompt` is a text, several, or their tokens."""

    prompt: Any = None


class OpenAIRoutes:
    """The model API in OpenAI's dialect, where it answers in text. `heartbeat` is "comments" or "chunks"."""

    def __init__(self, asking: Asking, body_limit: int, heartbeat: str) -> None:
        self._asking = asking
        self._body_limit = body_limit
        self._in_chunks = heartbeat == CHUNKS

    def routes(self) -> list[Route]:
        return [
            self._route("/v1/chat/completions", self.chat, "Chat, streaming or not", ChatRequest, "chat"),
            self._route("/v1/completions", self.complete, "Complete a text, streaming or not", CompletionRequest,
                        "completion"),
        ]

    def _route(self, path: str, handler: Any, summary: str, body: type[msgspec.Struct], answer: str) -> Route:
        return Route("POST", path, "models", handler, summary, body=body, query=None, body_limit=self._body_limit,
                     dialect=OPENAI, answer=answer, streams=True, errors=RUN_ERRORS,
                     headers=RUN_HEADERS)

    def _heartbeat(self, chunk: Callable[[str, int, str], bytes], record: RunRecord, model: str) -> bytes:
        return chunk(record.run_id, created_s(record), model) if self._in_chunks else COMMENT

    async def chat(self, request: Request) -> Response | StreamResponse:
        asked = request.json(ChatRequest)
        run = self._asking.run_request(request, asked.model, CHAT, cache_key=asked.prompt_cache_key,
                                       prefix=chat_prefix(asked.messages))

        def stream(record: RunRecord) -> ChatStream:
            return ChatStream(record.run_id, created_s(record), asked.model, asked.with_usage,
                              self._heartbeat(empty_delta, record, asked.model))

        def body(record: RunRecord) -> ChatBody:
            return ChatBody(record.run_id, created_s(record), asked.model)
        return await self._asking.answered(request, run, asked.stream, stream, body)

    async def complete(self, request: Request) -> Response | StreamResponse:
        asked = request.json(CompletionRequest)
        run = self._asking.run_request(request, asked.model, COMPLETIONS, cache_key=asked.prompt_cache_key,
                                       prefix=[asked.prompt] if isinstance(asked.prompt, str) else ())

        def stream(record: RunRecord) -> CompletionStream:
            return CompletionStream(record.run_id, created_s(record), asked.model, asked.with_usage,
                                    self._heartbeat(empty_piece, record, asked.model))

        def body(record: RunRecord) -> CompletionBody:
            return CompletionBody(record.run_id, created_s(record), asked.model)
        return await self._asking.answered(request, run, asked.stream, stream, body)
