"""Ollama's API over a backend of another kind."""

from __future__ import annotations

import json
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.task import Clock

from iop.adapters import openai
from iop.errors import InvalidRequest
from tests.adapters.asking import Asked, response, told_as_a_chat
from tests.adapters.kit import Started, Tools, target
from tests.adapters.upstream import Upstream


@pytest_twisted.ensureDeferred
async def test_ollamas_chat_is_told_as_openais(asked: Asked) -> None:
    body = {"model": "alias", "messages": [{"role": "user", "content": "hi", "images": ["iVBORw0="]}], "think": False,
            "options": {"num_predict": 5, "num_ctx": 4096}, "keep_alive": "5m"}
    call = await asked.ask(body=json.dumps(body).encode(), api="api/chat")
    sent = json.loads(asked.upstream.requests[0][2])
    assert sent == {
        "model": "m", "messages": [{"role": "user", "content": [
            {"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0="}}]}],
        "max_tokens": 5, "stream": True, "chat_template_kwargs": {"enable_thinking": False},
        "stream_options": {"include_usage": True}}
    await told_as_a_chat(asked, call)
    warnings = [event.status.detail for event in asked.run.sink.events if event.WhichOneof("kind") == "status"]
    assert ["num_ctx" in warning for warning in warnings] == [True, False] and "keep_alive" in warnings[1]


@pytest_twisted.ensureDeferred
async def test_ollamas_embed_is_told_as_embeddings(asked: Asked) -> None:
    call = await asked.ask(body=b'{"model":"a","input":["x","y"],"dimensions":3}', api="api/embed")
    line, _, body = asked.upstream.requests[0]
    assert line == "POST /v1/embeddings HTTP/1.1"
    assert json.loads(body) == {"model": "m", "input": ["x", "y"], "encoding_format": "float", "dimensions": 3}
    call.whole(b'{"object":"list","data":[{"embedding":[1.0]}]}')
    assert (await asked.run.ended())[0] == "completed"
    assert response(asked)["api"] == "embeddings"


@pytest_twisted.ensureDeferred
async def test_ollamas_raw_generate_is_told_as_completions(asked: Asked) -> None:
    call = await asked.ask(body=b'{"model":"a","prompt":"x","raw":true,"stream":false}', api="api/generate")
    assert asked.upstream.requests[0][0] == "POST /v1/completions HTTP/1.1"
    call.stream_head()
    call.event({"object": "text_completion", "choices": [{"index": 0, "text": "y", "finish_reason": "stop"}]})
    call.event(b"[DONE]")
    call.send(b"0\r\n\r\n")
    assert (await asked.run.ended())[0] == "completed"
    assert response(asked)["api"] == "completions" and asked.run.sink.text() == "y"


@pytest.mark.parametrize("api", ["api/chat", "api/generate", "api/embed"])
@pytest.mark.parametrize("body", [{}, {"messages": [], "prompt": "", "input": 5},
                                  {"messages": [1], "prompt": 1, "input": [1]}])
@pytest_twisted.ensureDeferred
async def test_what_is_no_request_of_ollamas_is_refused(upstream: Upstream, api: str, body: dict[str, Any]) -> None:
    run = Started(openai.factory, Tools(Clock()), target("m", url=upstream.url), body=json.dumps(body).encode(), api=api)
    assert (await run.ended())[1].code == InvalidRequest.code
    assert not upstream.connections
