"""The official Anthropic client at `iop up`: before a real llama.cpp server, which has the API, and before one of chats."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import pytest

from tests.e2e.up import Up, eventually
from tests.real.llama import LlamaServer
from tests.real.scripted import Reply, Scripted, call_tool, say

HI: Any = [{"role": "user", "content": "hi"}]
HELLO = "Hello from a real llama.cpp server, driven by IOP on your own machine."
WEATHER: Any = {"name": "weather", "description": "Tells the weather.", "input_schema": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}


@pytest.fixture(scope="module")
def backend() -> Iterator[Scripted]:
    with Scripted(say("x")) as scripted:
        yield scripted


@pytest.fixture(scope="module")
def llamas(llama_server: Callable[..., LlamaServer]) -> dict[str, LlamaServer]:
    return {name: llama_server(name) for name in ("hello", "tool", "loop")}


@pytest.fixture(scope="module")
def up(backend: Scripted, llamas: dict[str, LlamaServer], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    targets = [f"--openai={name}={server.api}" for name, server in llamas.items()]
    started = Up(tmp_path_factory.mktemp("messages") / "state", f"--openai=chats={backend.url}#fake",
                 "--cli=said=echo said {prompt}", *targets)
    yield started.wait_ready()
    assert started.stop() == 0, started.words()


@pytest.fixture(scope="module")
def client(up: Up) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=up.ready["http"], api_key=up.ready["api_key"], max_retries=0, timeout=30)


def refusal(call: Callable[[], object]) -> anthropic.APIStatusError:
    with pytest.raises(anthropic.APIStatusError) as raised:
        call()
    return raised.value


# --- a backend that has the API

def test_a_native_answer_is_the_backends_own(client: anthropic.Anthropic) -> None:
    message = client.messages.create(model="hello", max_tokens=100, messages=HI)
    assert message.content[0].text == HELLO and message.stop_reason == "end_turn"
    assert message.id.startswith("chatcmpl-"), "llama.cpp's own id"
    assert message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0) > 0 and message.usage.output_tokens > 0


def test_a_native_stream_is_the_backends_own(client: anthropic.Anthropic) -> None:
    with client.messages.stream(model="hello", max_tokens=4, messages=HI, system=[
            {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert HELLO.startswith(text) and message.stop_reason == "max_tokens" and message.usage.output_tokens == 4


def test_a_native_tool_call(client: anthropic.Anthropic) -> None:
    with client.messages.stream(model="tool", max_tokens=100, messages=HI, tools=[WEATHER],
                                tool_choice={"type": "any"}) as stream:
        message = stream.get_final_message()
    assert message.stop_reason == "tool_use" and message.content[-1].input == {"city": "Rome", "days": 3}


def test_a_native_backend_counts(client: anthropic.Anthropic) -> None:
    short = client.messages.count_tokens(model="hello", messages=HI).input_tokens
    long = client.messages.count_tokens(model="hello", messages=[{"role": "user", "content": "hi " * 50}]).input_tokens
    assert 0 < short < long


def test_who_leaves_a_native_stream_frees_the_slot(client: anthropic.Anthropic, llamas: dict[str, LlamaServer]) -> None:
    with client.messages.stream(model="loop", max_tokens=5000, messages=HI) as stream:
        next(iter(stream.text_stream))
        assert llamas["loop"].busy_slots() == 1
    left = time.monotonic()
    eventually(lambda: not llamas["loop"].busy_slots(), "the slot is free")
    assert time.monotonic() - left < 5


# --- a backend that has only chats

def test_a_turn_with_thoughts_a_tool_and_its_result(client: anthropic.Anthropic, backend: Scripted) -> None:
    backend.play = call_tool("weather", {"city": "Oslo"}, "Rain in Oslo.")
    messages = list(HI)
    with client.messages.stream(model="chats", max_tokens=100, messages=messages, tools=[WEATHER]) as stream:
        first = stream.get_final_message()
    assert first.stop_reason == "tool_use" and first.content[-1].input == {"city": "Oslo"} and first.usage.output_tokens == 6
    result = {"type": "tool_result", "tool_use_id": first.content[-1].id, "content": "rain"}
    messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = client.messages.create(model="chats", max_tokens=100, messages=messages, tools=[WEATHER])
    assert (second.content[0].text, second.stop_reason, second.usage.input_tokens) == ("Rain in Oslo.", "end_turn", 8)
    assert [message["role"] for message in backend.asked[-1]["messages"]] == ["user", "assistant", "tool"]


def test_what_is_left_out_stands_in_a_header(client: anthropic.Anthropic, backend: Scripted) -> None:
    backend.play = say("Done.")
    server_tool: Any = {"type": "web_search_20250305", "name": "web_search"}
    answer = client.messages.with_raw_response.create(model="chats", max_tokens=9, messages=HI, tools=[server_tool])
    assert "web_search" in answer.headers["x-iop-warning"]


def test_a_stream_that_breaks_is_an_error_and_no_answer(client: anthropic.Anthropic, backend: Scripted) -> None:
    backend.play = say("half of it", cut=True)
    with pytest.raises(anthropic.APIError) as raised, client.messages.stream(
            model="chats", max_tokens=9, messages=HI) as stream:
        for _ in stream:
            pass
    assert json.loads(json.dumps(raised.value.body))["error"]["type"] == "api_error"


def test_a_refusal_keeps_its_status_and_its_words(client: anthropic.Anthropic, backend: Scripted) -> None:
    backend.play = lambda body: Reply("Slow down, please.", status=429)
    error = refusal(lambda: client.messages.create(model="chats", max_tokens=9, messages=HI))
    assert isinstance(error, anthropic.RateLimitError) and "Slow down" in error.message
    assert error.request_id and error.body["request_id"] == error.request_id


def test_what_is_no_request_is_refused_with_its_place(client: anthropic.Anthropic) -> None:
    wrong: Any = [{"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "f"}}]}]
    error = refusal(lambda: client.messages.create(model="chats", max_tokens=9, messages=wrong))
    assert isinstance(error, anthropic.BadRequestError) and "messages.0.content.0.source" in error.message


def test_nothing_is_counted_that_cannot_be(client: anthropic.Anthropic) -> None:
    error = refusal(lambda: client.messages.count_tokens(model="chats", messages=HI))
    assert isinstance(error, anthropic.NotFoundError) and "count" in error.message


def test_a_program_is_a_model(client: anthropic.Anthropic) -> None:
    parts: Any = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    with client.messages.stream(model="said", max_tokens=9, messages=parts) as stream:
        message = stream.get_final_message()
    assert (message.content[0].text, message.stop_reason) == ("said hi\n", "end_turn")
    assert isinstance(refusal(lambda: client.messages.count_tokens(model="said", messages=HI)), anthropic.NotFoundError)


def test_its_list_of_models(client: anthropic.Anthropic) -> None:
    listed = {model.id: model for model in client.models.list(limit=1000)}
    assert listed.keys() == {"chats", "said", "hello", "tool", "loop"} and listed["hello"].display_name
