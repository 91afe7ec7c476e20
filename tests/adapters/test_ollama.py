"""The ollama adapter before the double, and the double before Ollama's official client."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from typing import Any

import ollama as official
import pytest
import pytest_twisted
from openai.types import CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from twisted.internet import reactor
from twisted.internet.threads import deferToThread

from iop.adapters import ollama
from iop.adapters.wire.to_ollama import from_openai, to_messages
from iop.errors import Cancelled, InvalidRequest
from iop.proto.run_pb2 import CHANNEL_REASONING, CHANNEL_TEXT
from iop.servers import TargetHealth
from tests.adapters.kit import RUN_ID, Started, Tools, target, until
from tests.adapters.ollama_double import OllamaDouble


@pytest.fixture()
def double() -> Iterator[OllamaDouble]:
    listening = OllamaDouble()
    yield listening
    pytest_twisted.blockon(listening.stop())


async def ran(double: OllamaDouble, settings: dict[str, Any] | None = None, **request: Any) -> Any:
    run = Started(ollama.factory, Tools(reactor), target("tiny", url=double.url, **(settings or {})), **request)
    run.kind, run.outcome = await run.ended()  # type: ignore[attr-defined]
    await run.close()
    return run


def chat(stream: bool = True, **more: Any) -> dict[str, Any]:
    body = {"model": "alias", "messages": [{"role": "user", "content": "one two three"}], "stream": stream} | more
    return {"body": json.dumps(body).encode(), "api": "chat/completions", "created_us": 1_700_000_000_000_000}


def official_reads(url: str) -> dict[str, Any]:
    client = official.Client(host=url)
    user = [{"role": "user", "content": "one two"}]
    found = {
        "tags": [model.model for model in client.list().models],
        "show": client.show("tiny").details.family,
        "chat": client.chat("tiny", user).message.content,
        "chat_stream": [part.message.content for part in client.chat("tiny", user, stream=True)],
        "generate": client.generate("tiny", "one two").response,
        "generate_stream": [part.response for part in client.generate("tiny", "one two", stream=True)],
        "last": list(client.chat("tiny", user, stream=True))[-1].eval_count,
        "ps": client.ps().models,
        "embed": client.embed("tiny", ["ab"]).embeddings,
    }
    for name, ask in (("missing", lambda: client.chat("nope", user)),
                      ("broken", lambda: list(client.generate("tiny", "a break", stream=True)))):
        with pytest.raises(official.ResponseError) as caught:
            ask()
        found[name] = caught.value.error
    return found


@pytest_twisted.ensureDeferred
async def test_the_official_client_takes_the_double_for_an_ollama(double: OllamaDouble) -> None:
    assert await deferToThread(official_reads, double.url) == {
        "tags": ["tiny:latest"], "show": "llama", "chat": "one two", "chat_stream": ["one", " two", ""],
        "generate": "one two", "generate_stream": ["one", " two", ""], "last": 4, "ps": [],
        "embed": [[2.0, 0.5]],
        "missing": "model 'nope' not found", "broken": "the runner ended unexpectedly"}


@pytest_twisted.ensureDeferred
async def test_a_prompt_streams_ollamas_own_lines(double: OllamaDouble) -> None:
    run = await ran(double, {"options": {"num_ctx": 512}, "keep_alive": "5m"}, prompt="think one two")
    assert (run.kind, run.outcome.finish_reason, run.outcome.usage.total_tokens) == ("completed", "stop", 11)
    assert run.sink.text(CHANNEL_TEXT) == "think one two" and run.sink.text(CHANNEL_REASONING) == "hm"
    assert json.loads(run.sink.events[1].raw)["message"]["thinking"] == "hm"
    assert double.bodies == [{"model": "tiny", "messages": [{"role": "user", "content": "think one two"}], "stream": True,
                              "options": {"num_ctx": 512}, "keep_alive": "5m"}]


@pytest_twisted.ensureDeferred
async def test_an_openai_stream_is_told_in_openais_chunks(double: OllamaDouble) -> None:
    run = await ran(double, **chat(temperature=0.5, max_tokens=9, stop="x"))
    chunks = [ChatCompletionChunk.model_validate_json(event.raw, strict=True) for event in run.sink.events[1:]]
    assert {(chunk.id, chunk.created, chunk.model) for chunk in chunks} == {(f"chatcmpl-{RUN_ID}", 1_700_000_000, "tiny")}
    assert [chunk.choices[0].delta.content for chunk in chunks[:-1]] == ["", "one", " two", " three", None]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * 4 + ["stop"]
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens == 11  # type: ignore[union-attr]
    assert run.sink.kinds == ["started", *["output"] * 5, "usage"] and run.sink.text() == "one two three"
    assert double.bodies[0]["options"] == {"temperature": 0.5, "num_predict": 9, "stop": ["x"]}


@pytest_twisted.ensureDeferred
async def test_a_whole_openai_reply_is_one_output(double: OllamaDouble) -> None:
    run = await ran(double, **chat(stream=False))
    assert run.sink.kinds == ["started", "output"] and run.sink.text() == "one two three"
    reply = ChatCompletion.model_validate_json(run.sink.events[1].raw, strict=True)
    assert reply.choices[0].message.content == "one two three" and reply.choices[0].finish_reason == "stop"
    assert reply.usage.completion_tokens == 4  # type: ignore[union-attr]


@pytest.mark.parametrize("stream", [True, False])
@pytest_twisted.ensureDeferred
async def test_tool_calls_become_openais(double: OllamaDouble, stream: bool) -> None:
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
    run = await ran(double, **chat(stream=stream, tools=tools))
    assert run.outcome.finish_reason == "tool_calls" and double.bodies[0]["tools"] == tools
    if stream:
        chunks = [ChatCompletionChunk.model_validate_json(event.raw, strict=True) for event in run.sink.events[1:-1]]
        [call] = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
        assert call.index == 0 and chunks[-1].choices[0].finish_reason == "tool_calls"
    else:
        reply = ChatCompletion.model_validate_json(run.sink.events[1].raw, strict=True)
        [call] = reply.choices[0].message.tool_calls or []
    assert (call.type, call.function.name, call.function.arguments) == ("function", "get_weather", '{"city":"Oslo"}')
    assert call.id


@pytest.mark.parametrize("api", ["api/chat", "api/generate"])
@pytest_twisted.ensureDeferred
async def test_native_bodies_travel_whole_and_stream_unless_they_say_no(double: OllamaDouble, api: str) -> None:
    asked = {"model": "alias", "prompt": "a b", "messages": [{"role": "user", "content": "a b"}], "odd": [1]}
    run = await ran(double, body=json.dumps(asked).encode(), api=api)
    assert run.sink.text() == "a b" and run.sink.kinds == ["started", *["output"] * 3]
    run = await ran(double, body=json.dumps(asked | {"stream": False}).encode(), api=api)
    assert run.sink.text() == "a b" and run.sink.kinds == ["started", "output"]
    assert double.bodies == [asked | {"model": "tiny"}, asked | {"model": "tiny", "stream": False}]


@pytest.mark.parametrize("request_", [{"prompt": "a break"}, {
    "body": b'{"messages":[{"role":"user","content":"a break"}],"stream":true}', "api": "chat/completions"}])
@pytest_twisted.ensureDeferred
async def test_an_error_line_in_the_stream_is_a_failure(double: OllamaDouble, request_: dict[str, Any]) -> None:
    run = await ran(double, **request_)
    assert (run.kind, run.outcome.code, run.outcome.retryable) == ("failed", "upstream_error", False)
    assert "runner ended" in run.outcome.message and run.sink.text() == "a"


@pytest_twisted.ensureDeferred
async def test_a_missing_model_keeps_ollamas_own_words(double: OllamaDouble) -> None:
    run = await ran(double, {"model": "nope"}, prompt="x")
    assert (run.outcome.code, run.outcome.upstream_status) == ("upstream_error", 404)
    assert "model 'nope' not found" in run.outcome.message


@pytest_twisted.ensureDeferred
async def test_a_stop_ends_an_endless_answer(double: OllamaDouble) -> None:
    run = Started(ollama.factory, Tools(reactor), target("tiny", url=double.url), prompt="forever")
    await until(lambda: len(run.sink.events) > 5)
    run.execution.stop(Cancelled())
    assert (await run.ended())[0] == "cancelled"
    await run.close()


@pytest_twisted.ensureDeferred
async def test_health_says_which_models_are_there_and_which_are_in_memory(double: OllamaDouble) -> None:
    settings = {name: ollama.factory.settings(target(name, url=double.url, model=model))
                for name, model in (("a", "tiny"), ("b", "tiny:latest"), ("c", "nope"))}
    adapter = ollama.factory.build(settings, Tools(reactor))
    found = await adapter.check()
    assert found["a"] == found["b"] == TargetHealth(warm=False) and "iop node pull nope" in found["c"].why_not
    double.loaded.append("tiny:latest")
    double.shown |= {"model_info": {"llama.context_length": 8192}, "parameters": "num_ctx    2048\nstop  x"}
    assert (await adapter.check())["a"] == TargetHealth(warm=True, context_tokens=2048)
    await adapter.close()
    await double.stop()
    assert "cannot be reached" in (await adapter.check())["a"].why_not


def test_messages_become_ollamas() -> None:
    told = to_messages([
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "see"},
                                     {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "42"}])
    assert told == [
        {"role": "system", "content": "be brief"}, {"role": "user", "content": "see", "images": ["AAAA"]},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
        {"role": "tool", "content": "42", "tool_name": "f"}]


@pytest.mark.parametrize("body", [
    {"messages": "x"}, {"messages": [1]}, {"messages": [], "n": 2},
    {"messages": [{"role": "user", "content": [{"type": "x"}]}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://h/x.png"}}]}]},
    {"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]}]},
    {"messages": [{"role": "assistant", "tool_calls": ["x"]}]},
    {"messages": [{"role": "assistant", "tool_calls": [{"function": 1}]}]}])
def test_what_ollama_cannot_do_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        from_openai(body, "m", {}, None)


# --- the other APIs ---


def reply_of(run: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.sink.events[0].started.response)
    return found


@pytest.mark.parametrize("encoding", [None, "float", "base64"])
@pytest_twisted.ensureDeferred
async def test_embeddings_are_told_as_openais(double: OllamaDouble, encoding: str | None) -> None:
    body = {"model": "alias", "input": ["ab", "abc"], "encoding_format": encoding, "dimensions": 2}
    run = await ran(double, {"options": {"num_ctx": 64}, "keep_alive": "1m"}, body=json.dumps(body).encode(),
                    api="embeddings")
    assert double.bodies == [{"model": "tiny", "input": ["ab", "abc"], "dimensions": 2, "options": {"num_ctx": 64},
                              "keep_alive": "1m"}]
    assert (run.kind, run.outcome.usage.prompt_tokens) == ("completed", 3) and "api" not in reply_of(run)
    told = CreateEmbeddingResponse.model_validate_json(run.sink.events[1].raw) if encoding != "base64" else None
    if told is not None:
        assert [one.embedding for one in told.data] == [[2.0, 0.5], [3.0, 0.5]] and told.usage.total_tokens == 3
    else:
        data = json.loads(run.sink.events[1].raw)["data"]
        assert [struct.unpack("<2f", base64.b64decode(one["embedding"])) for one in data] == [(2.0, 0.5), (3.0, 0.5)]


@pytest_twisted.ensureDeferred
async def test_embed_passes_as_it_is(double: OllamaDouble) -> None:
    run = await ran(double, body=b'{"model":"alias","input":"ab","truncate":false}', api="api/embed")
    assert double.bodies == [{"model": "tiny", "input": "ab", "truncate": False}]
    assert json.loads(run.sink.events[1].raw)["embeddings"] == [[2.0, 0.5]]
    assert (run.kind, run.outcome.usage.total_tokens) == ("completed", 3)


@pytest.mark.parametrize(("api", "body"), [
    ("responses", {"input": "one two", "stream": True, "tools": [{"type": "web_search"}]}),
    ("messages", {"messages": [{"role": "user", "content": "one two"}], "max_tokens": 9, "stream": True}),
    ("completions", {"prompt": "one two", "stream": True})])
@pytest_twisted.ensureDeferred
async def test_every_other_api_is_told_as_a_chat(double: OllamaDouble, api: str, body: dict[str, Any]) -> None:
    run = await ran(double, body=json.dumps(body).encode(), api=api)
    assert (run.kind, run.sink.text()) == ("completed", "one two"), run.outcome
    assert reply_of(run)["api"] == "chat/completions"
    assert double.bodies[0]["messages"] == [{"role": "user", "content": "one two"}]
    warned = [event.status.detail for event in run.sink.events if event.WhichOneof("kind") == "status"]
    assert bool(warned) is (api != "messages")


@pytest.mark.parametrize("api", ["rerank", "images/generations", "messages/count_tokens", "audio/speech"])
@pytest_twisted.ensureDeferred
async def test_an_api_that_ollama_does_not_have_is_a_404(double: OllamaDouble, api: str) -> None:
    run = await ran(double, body=b"{}", api=api)
    assert (run.outcome.code, run.outcome.upstream_status) == ("upstream_error", 404) and api in run.outcome.message
    assert not double.bodies


@pytest_twisted.ensureDeferred
async def test_what_ollama_has_no_word_for_is_a_warning(double: OllamaDouble) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    run = await ran(double, **chat(logit_bias={"1": 2}, tools=tools, tool_choice="required"))
    assert run.sink.kinds[:3] == ["started", "status", "status"]
    assert "logit_bias" in run.sink.events[1].status.detail and "tool_choice" in run.sink.events[2].status.detail


def test_answer_formats_are_told() -> None:
    assert from_openai({"messages": [], "response_format": {"type": "json_schema", "json_schema": 7}},
                       "m", {}, None)["format"] == "json"
    assert from_openai({"messages": [], "response_format": {"type": "json_object"}}, "m", {}, None)["format"] == "json"
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    assert from_openai({"messages": [], "response_format": schema}, "m", {}, None)["format"] == {"type": "object"}
    assert from_openai({"messages": [], "reasoning_effort": "none"}, "m", {}, None)["think"] is False
