"""The openai adapter before a real llama.cpp server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.threads import deferToThread

from iop.adapters import openai
from iop.adapters.wire.whole import JoiningReader
from iop.errors import Cancelled
from tests.adapters.kit import Started, Tools, target, until
from tests.real.llama import LlamaServer

HELLO = "Hello from a real llama.cpp server, driven by IOP on your own machine."


def ask(server: LlamaServer, **request: Any) -> Started:
    """`joined` is what llama.cpp is asked for once a health check has told what it is."""
    config = target(server.model, url=server.api, answers="joined")
    return Started(openai.factory, Tools(reactor), config, **(request or {"prompt": "hi"}))


@pytest_twisted.ensureDeferred
async def test_a_prompt_is_answered_token_by_token(llama_server: Callable[..., LlamaServer]) -> None:
    run = ask(llama_server("hello"))
    kind, outcome = await run.ended(20)
    assert (kind, outcome.finish_reason, run.sink.text()) == ("completed", "stop", HELLO)
    assert outcome.usage.completion_tokens == len(HELLO.split()) + 1
    await run.close()


@pytest_twisted.ensureDeferred
async def test_tokens_arrive_as_they_come(llama_server: Callable[..., LlamaServer]) -> None:
    run = ask(llama_server("loop"))
    await until(lambda: len(run.sink.batches) > 20, 20)
    assert run.ending is None, "it never ends by itself"
    assert run.sink.text().startswith("tick1 tick2 tick3")
    run.execution.stop(Cancelled())
    await run.ended()
    await run.close()


@pytest_twisted.ensureDeferred
async def test_a_stop_frees_the_slot(llama_server: Callable[..., LlamaServer]) -> None:
    server = llama_server("loop")
    run = ask(server)
    await until(lambda: run.sink.text(), 20)
    assert await deferToThread(server.busy_slots) == 1
    run.execution.stop(Cancelled())
    stopped = reactor.seconds()
    assert (await run.ended())[0] == "cancelled"
    while await deferToThread(server.busy_slots):
        assert reactor.seconds() - stopped < 5, "the slot is still busy"
    await run.close()


@pytest_twisted.ensureDeferred
async def test_a_body_without_streaming_comes_whole(llama_server: Callable[..., LlamaServer]) -> None:
    body = {"model": "alias", "messages": [{"role": "user", "content": "hi"}], "temperature": 0.8}
    run = ask(llama_server("hello"), body=json.dumps(body).encode(), api="chat/completions")
    await run.ended(20)
    assert run.sink.kinds == ["started", "output"] and run.sink.text() == HELLO
    assert json.loads(run.sink.events[1].raw)["timings"], "the backend's own fields travel along"
    await run.close()


CITY = {"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}


@pytest.mark.parametrize(("model", "api", "asked"), [
    ("hello", "chat/completions", {}), ("hello", "chat/completions", {"max_tokens": 4}),
    ("hello", "chat/completions", {"n": 2, "max_tokens": 4, "logprobs": True, "top_logprobs": 2}),
    ("hello", "completions", {"prompt": "hi\n"}), ("hello", "completions", {"prompt": "hi\n", "logprobs": 2}),
    ("tool", "chat/completions", {"tools": [CITY], "tool_choice": "required"})])
@pytest_twisted.ensureDeferred
async def test_a_joined_answer_is_field_for_field_the_servers_own(
        llama_server: Callable[..., LlamaServer], model: str, api: str, asked: dict[str, Any]) -> None:
    server = llama_server(model)
    chat = {} if api == "completions" else {"messages": [{"role": "user", "content": "hi"}]}
    body = json.dumps({"model": model, "temperature": 0, "seed": 1, "cache_prompt": False} | chat | asked).encode()
    own = await deferToThread(server.post, f"/{api}", body)
    run = ask(server, body=body, api=api)
    await run.ended(20)
    assert isinstance(run.execution._reader, JoiningReader)
    joined = json.loads(run.sink.events[1].raw)
    if model == "tool":
        assert own["choices"][0]["message"]["tool_calls"], "the model has made its call"
        assert own["choices"][0]["message"].pop("content") == "", "where OpenAI says null"
        assert joined["choices"][0]["message"].pop("content") is None
    assert without_chance(joined) == without_chance(own)
    await run.close()


def without_chance(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without what two answers never share: ids, the clock, and how long it took."""
    for choice in answer["choices"]:
        for call in choice.get("message", {}).get("tool_calls", ()):
            assert call.pop("id")
    assert answer.pop("id") and answer.pop("created")
    timings = {name: value if name.endswith("_n") else type(value) for name, value in answer["timings"].items()}
    return answer | {"timings": timings}


@pytest_twisted.ensureDeferred
async def test_a_stop_frees_the_slot_also_of_an_answer_in_one_piece(llama_server: Callable[..., LlamaServer]) -> None:
    server = llama_server("loop")
    run = ask(server, body=b'{"messages":[{"role":"user","content":"hi"}]}', api="chat/completions")
    await until(lambda: run.sink.kinds, 20)
    assert await deferToThread(server.busy_slots) == 1
    run.execution.stop(Cancelled())
    stopped = reactor.seconds()
    assert (await run.ended())[0] == "cancelled"
    while await deferToThread(server.busy_slots):
        assert reactor.seconds() - stopped < 1, "asked without a stream, it takes more than a second"
    await run.close()


@pytest_twisted.ensureDeferred
async def test_its_error_bodies_pass_through(llama_server: Callable[..., LlamaServer]) -> None:
    run = ask(llama_server("hello", ctx=512, parallel=1), prompt="x" * 2000)
    kind, outcome = await run.ended(20)
    assert (kind, outcome.code, outcome.upstream_status) == ("failed", "upstream_error", 400)
    error = json.loads(outcome.upstream_body)["error"]
    assert error["type"] == "exceed_context_size_error" and "context" in outcome.message
    await run.close()


@pytest_twisted.ensureDeferred
async def test_the_responses_api_and_health_work_through_the_same_code(llama_server: Callable[..., LlamaServer]) -> None:
    server = llama_server("hello")
    run = ask(server, body=b'{"model":"x","input":"hi","stream":true}', api="responses")
    kind, outcome = await run.ended(20)
    assert kind == "completed" and run.sink.text() == HELLO and outcome.usage.total_tokens
    health = (await run.adapter.check())["hello"]
    assert (health.why_not, health.warm) == ("", True) and health.context_tokens > 0
    await run.close()
