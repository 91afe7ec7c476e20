"""Every model API before a real llama.cpp server: in the API itself, and told as a chat where the target lacks it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.threads import deferToThread

from iop.adapters import openai
from iop.errors import Cancelled
from tests.adapters.kit import Started, Tools, target, until
from tests.real.llama import LlamaServer
from tests.real.test_llama import HELLO

USER = [{"role": "user", "content": "hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": USER}, "completions": {"prompt": "hi"}, "responses": {"input": "hi"},
    "messages": {"messages": USER, "max_tokens": 99}, "api/chat": {"messages": USER}, "api/generate": {"prompt": "hi"}}


async def asked(server: LlamaServer, api: str, settings: dict[str, Any] | None = None, **body: Any) -> Started:
    config = target(server.model, url=server.api, answers="joined", **(settings or {}))
    run = Started(openai.factory, Tools(reactor), config, api=api, body=json.dumps({"model": "alias"} | body).encode())
    await run.ended(20)
    await run.close()
    return run


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", list(BODIES))
@pytest_twisted.ensureDeferred
async def test_each_api_answers(llama_server: Callable[..., LlamaServer], api: str, stream: bool) -> None:
    run = await asked(llama_server("hello"), api, **BODIES[api], stream=stream)
    assert run.ending is not None and run.ending[0] == "completed", run.ending
    response = json.loads(run.sink.events[0].started.response)
    assert response.get("api") == ("chat/completions" if api.startswith("api/") else None)
    said = HELLO.rpartition(" ")[2] if api == "completions" else HELLO      # that goes on where the prompt ends
    assert said in b"".join(event.raw for event in run.sink.events).decode() or run.sink.text() == said
    assert run.ending[1].usage.completion_tokens


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", ["completions", "responses", "messages"])
@pytest_twisted.ensureDeferred
async def test_each_api_is_answered_as_a_chat_where_it_is_said_to_be_lacking(
        llama_server: Callable[..., LlamaServer], api: str, stream: bool) -> None:
    run = await asked(llama_server("hello"), api, {"apis": ["chat/completions"]}, **BODIES[api], stream=stream)
    assert run.ending is not None and run.ending[0] == "completed", run.ending
    assert json.loads(run.sink.events[0].started.response)["api"] == "chat/completions"
    assert run.sink.text() == HELLO and run.ending[1].usage.completion_tokens


@pytest_twisted.ensureDeferred
async def test_tokens_are_counted_and_what_it_lacks_is_its_own_refusal(llama_server: Callable[..., LlamaServer]) -> None:
    run = await asked(llama_server("hello"), "messages/count_tokens", messages=USER)
    assert json.loads(run.sink.events[1].raw)["input_tokens"] > 0
    run = await asked(llama_server("hello"), "embeddings", input="hi")
    assert run.ending is not None and run.ending[1].upstream_status == 501
    assert b"embedding" in run.ending[1].upstream_body


@pytest.mark.parametrize("api", ["responses", "messages", "completions", "api/chat"])
@pytest_twisted.ensureDeferred
async def test_a_stop_frees_the_slot_in_every_api(llama_server: Callable[..., LlamaServer], api: str) -> None:
    server = llama_server("loop")
    body = json.dumps({"model": "alias", "stream": True} | BODIES[api]).encode()
    run = Started(openai.factory, Tools(reactor), target(server.model, url=server.api), api=api, body=body)
    await until(lambda: run.sink.text(), 20)
    run.execution.stop(Cancelled())
    stopped = reactor.seconds()
    assert (await run.ended())[0] == "cancelled"
    while await deferToThread(server.busy_slots):
        assert reactor.seconds() - stopped < 2, "the slot is still busy"
    await run.close()


@pytest.mark.parametrize(("api", "body"), [
    ("responses", {"input": "hi"}), ("responses", {"input": "hi", "max_output_tokens": 4}),
    ("messages", {"messages": USER, "max_tokens": 99}), ("messages", {"messages": USER, "max_tokens": 4})])
@pytest_twisted.ensureDeferred
async def test_a_native_answer_that_is_joined_is_the_servers_own(
        llama_server: Callable[..., LlamaServer], api: str, body: dict[str, Any]) -> None:
    server = llama_server("hello")
    told = {"temperature": 0, "seed": 1, "cache_prompt": False} | body
    own = await deferToThread(server.post, f"/{api}", json.dumps(told | {"model": "hello"}).encode())
    run = await asked(server, api, **told)
    joined = json.loads(run.sink.events[1].raw)
    assert without_chance(joined) == without_chance(own)


def without_chance(value: Any) -> Any:
    """An answer without what two answers never share: ids, the clock, and how long it took."""
    if isinstance(value, list):
        return [without_chance(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: without_chance(item) for name, item in value.items()
            if name not in ("id", "created", "created_at", "completed_at", "timings")}
