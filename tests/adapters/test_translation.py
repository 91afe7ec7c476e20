"""Model APIs told in another one, where an OpenAI-compatible backend lacks them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.task import Clock

from iop.adapters import openai, vllm
from iop.adapters.wire.lacking import DAY_S, Lacking
from iop.errors import ConfigError
from tests.adapters.asking import BODIES, MESSAGES, RESPONSES, Asked, raws, response, told_as_a_chat
from tests.adapters.kit import Sink, Started, Tools, target, until
from tests.adapters.upstream import Upstream


@pytest.mark.parametrize("status", ["404 Not Found", "405 Method Not Allowed", "501 Not Implemented"])
@pytest.mark.parametrize("api", ["responses", "messages", "completions"])
@pytest_twisted.ensureDeferred
async def test_an_api_that_the_backend_lacks_is_told_as_a_chat_from_then_on(asked: Asked, api: str, status: str) -> None:
    call = await asked.ask(body=json.dumps(BODIES[api]).encode(), api=api)
    assert asked.upstream.requests[0][0] == f"POST /v1/{api} HTTP/1.1"
    call.whole(b'{"detail":"Not Found"}', status)
    await until(lambda: len(asked.upstream.calls) == 2)
    body = json.loads(asked.upstream.requests[1][2])
    assert body["model"] == "m" and body["stream"] is True and body["stream_options"] == {"include_usage": True}
    assert [(message["role"], message["content"]) for message in body["messages"]] == [("user", "hi")]
    await told_as_a_chat(asked, asked.upstream.calls[1])
    again = asked.run.adapter.execute(asked.run.execution._spec, Sink())
    await until(lambda: len(asked.upstream.calls) == 3)
    assert asked.upstream.requests[2][0] == "POST /v1/chat/completions HTTP/1.1"
    asked.upstream.calls[2].whole(b"{}", "400 Bad")
    await until(lambda: again._told)


@pytest_twisted.ensureDeferred
async def test_a_whole_answer_is_told_whole_in_the_other_api(asked: Asked) -> None:
    call = await asked.ask(body=json.dumps(MESSAGES | {"stream": False}).encode(), api="messages")
    call.whole(b"", "404 Not Found")
    await until(lambda: len(asked.upstream.calls) == 2)
    call = asked.upstream.calls[1]
    call.stream_head()
    call.words("Hello")
    call.end()
    assert (await asked.run.ended())[0] == "completed"
    assert asked.run.sink.kinds == ["started", "output"] and json.loads(raws(asked))["object"] == "chat.completion"
    assert response(asked)["api"] == "chat/completions"


@pytest_twisted.ensureDeferred
async def test_a_model_that_is_nowhere_is_no_lack_of_an_api(asked: Asked) -> None:
    call = await asked.ask(body=json.dumps(RESPONSES).encode(), api="responses")
    call.whole(b'{"error":{"message":"The model `m` does not exist."}}', "404 Not Found")
    await until(lambda: len(asked.upstream.calls) == 2)
    asked.upstream.calls[1].whole(b'{"error":{"message":"The model `m` does not exist."}}', "404 Not Found")
    await asked.fails("does not exist", status=404)
    asked.run.adapter.execute(asked.run.execution._spec, Sink())
    await until(lambda: len(asked.upstream.calls) == 3)
    assert asked.upstream.requests[2][0] == "POST /v1/responses HTTP/1.1"
    asked.upstream.calls[2].whole(b"{}", "400 Bad")
    await until(lambda: not asked.clock.getDelayedCalls())


@pytest_twisted.ensureDeferred
async def test_what_cannot_be_told_is_a_refusal_of_the_run(asked: Asked) -> None:
    call = await asked.ask(body=b'{"model":"a","prompt":[1,2,3]}', api="completions")
    call.whole(b"", "404 Not Found")
    kind, outcome = await asked.run.ended()
    assert (kind, outcome.code) == ("failed", "invalid_request") and "one text" in outcome.message


@pytest_twisted.ensureDeferred
async def test_apis_says_what_is_not_even_tried(asked: Asked) -> None:
    tool = {"type": "web_search"}
    call = await asked.ask(settings={"apis": ["chat/completions"]}, api="responses",
                           body=json.dumps(RESPONSES | {"tools": [tool]}).encode())
    await told_as_a_chat(asked, call)
    warnings = [event.status for event in asked.run.sink.events if event.WhichOneof("kind") == "status"]
    assert [status.word for status in warnings] == ["warning"] and "web_search" in warnings[0].detail
    assert asked.run.sink.kinds[:2] == ["started", "status"]
    assert len(asked.upstream.requests) == 1


@pytest.mark.parametrize(("api", "body"), [
    ("responses", RESPONSES | {"tools": [{"type": "custom", "name": "p"}]}),
    ("messages", MESSAGES | {"tools": [{"type": "web_search_20250305", "name": "web_search"}]})])
@pytest_twisted.ensureDeferred
async def test_what_most_backends_would_not_understand_whole_is_told_as_a_chat(
        asked: Asked, api: str, body: dict[str, Any]) -> None:
    call = await asked.ask(api=api, body=json.dumps(body).encode())
    await told_as_a_chat(asked, call)


NO_ROOM = [
    "max_tokens=32000 cannot be greater than max_model_len=16384. Please request fewer output tokens.",
    "This model's maximum context length is 32768 tokens. However, you requested 32000 output tokens and your prompt "
    "contains at least 769 input tokens, for a total of at least 32769 tokens.",
    "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is 32768 tokens and "
    "your request has 1200 input tokens.",
    "Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a total of 33000 "
    "tokens: 1000 tokens from the input messages and 32000 tokens for the completion."]


@pytest.mark.parametrize("refusal", NO_ROOM)
@pytest_twisted.ensureDeferred
async def test_an_answer_may_have_what_room_there_is(asked: Asked, refusal: str) -> None:
    call = await asked.ask(settings={"apis": ["chat/completions"]}, api="messages",
                           body=json.dumps(MESSAGES | {"max_tokens": 32_000}).encode())
    assert json.loads(asked.upstream.requests[0][2])["max_tokens"] == 32_000
    call.whole(json.dumps({"error": {"message": refusal, "code": 400}}).encode(), "400 Bad Request")
    await until(lambda: len(asked.upstream.calls) == 2)
    assert "max_tokens" not in json.loads(asked.upstream.requests[1][2])
    await told_as_a_chat(asked, asked.upstream.calls[1])
    assert "`max_tokens` was left out" in asked.run.sink.events[1].status.detail


@pytest.mark.parametrize(("refusal", "asked_for"), [
    ("This model's maximum context length is 4096 tokens. However, you requested 0 output tokens and your prompt contains "
     "at least 4097 input tokens", {"max_tokens": 9}), (NO_ROOM[0], {"max_tokens": None})])
@pytest_twisted.ensureDeferred
async def test_a_prompt_without_room_is_refused_once(asked: Asked, refusal: str, asked_for: dict[str, Any]) -> None:
    call = await asked.ask(settings={"apis": ["chat/completions"]}, api="messages",
                           body=json.dumps(MESSAGES | asked_for).encode())
    call.whole(json.dumps({"error": {"message": refusal, "code": 400}}).encode(), "400 Bad Request")
    await asked.fails(refusal[:40], status=400)
    assert len(asked.upstream.requests) == 1


@pytest_twisted.ensureDeferred
async def test_who_says_that_a_backend_has_responses_is_believed(asked: Asked) -> None:
    call = await asked.ask(settings={"apis": ["responses"]}, api="responses",
                           body=json.dumps(RESPONSES | {"tools": [{"type": "custom", "name": "p"}]}).encode())
    assert asked.upstream.requests[0][0] == "POST /v1/responses HTTP/1.1"
    call.whole(b"{}", "400 Bad")
    await asked.fails(status=400)


@pytest_twisted.ensureDeferred
async def test_an_api_that_the_backend_lacks_and_that_cannot_be_told_is_a_404(upstream: Upstream) -> None:
    run = Started(openai.factory, Tools(Clock()), target("m", url=upstream.url, apis=["chat/completions"]),
                  body=b'{"input":"x"}', api="embeddings")
    outcome = (await run.ended())[1]
    assert (outcome.code, outcome.upstream_status, outcome.retryable) == ("upstream_error", 404, False)
    assert not upstream.connections


def test_apis_names_apis() -> None:
    for factory in (openai.factory, vllm.factory):
        with pytest.raises(ConfigError) as caught:
            factory.settings(target("m", url="http://h/v1", apis=["chat/completions", "chats"]))
        assert "chats" in caught.value.message and "chat/completions" in caught.value.message


def test_a_lack_is_forgotten_after_a_day() -> None:
    clock = Clock()
    lacking = Lacking(clock)
    lacking.found("m", "responses")
    assert lacking.lacks("m", "responses") and not lacking.lacks("m", "messages") and not lacking.lacks("n", "responses")
    clock.advance(DAY_S + 1)
    assert not lacking.lacks("m", "responses")
