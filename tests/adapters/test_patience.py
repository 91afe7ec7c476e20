"""How long a backend is waited for, and what it sends that is not what was asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.task import deferLater

from tests.adapters.asking import Asked
from tests.adapters.kit import until
from tests.adapters.upstream import Call, delta

CHAT = json.dumps({"model": "a", "messages": [], "stream": True}).encode()
WHOLE = json.dumps({"model": "a", "messages": []}).encode()
EMPTY = json.dumps(delta("")).encode()


async def chat(asked: Asked, body: bytes = CHAT, **settings: Any) -> Call:
    return await asked.ask(settings=settings, body=body, api="chat/completions")


async def arrives() -> None:
    """What has been sent is read: nothing that can be waited for comes of it."""
    await deferLater(reactor, 0.03)


KEEPALIVES = [b": ping\n\n", b"\n\n", b"event: ping\n\n", b"data: " + EMPTY + b"\n\n"]


@pytest.mark.parametrize("keepalive", KEEPALIVES)
@pytest.mark.parametrize("body", [CHAT, WHOLE])
@pytest_twisted.ensureDeferred
async def test_a_backend_that_only_keeps_its_connection_alive_stalls(asked: Asked, keepalive: bytes, body: bytes) -> None:
    call = await chat(asked, body, idle_s=3)
    call.stream_head()
    call.words("Hello")
    await until(lambda: asked.run.execution._reader.heard)
    for _ in range(2):
        asked.clock.advance(1.4)
        call.chunk(keepalive)
        await arrives()
    assert asked.run.ending is None
    asked.clock.advance(0.3)
    assert (await asked.fails("3 s", "idle_s")).retryable is (body is WHOLE), "only what was seen must not be repeated"
    await until(lambda: not call.open)


@pytest.mark.parametrize("keepalive", KEEPALIVES)
@pytest_twisted.ensureDeferred
async def test_a_prompt_that_takes_long_may_be_given_more_time_than_the_head(asked: Asked, keepalive: bytes) -> None:
    call = await chat(asked, first_byte_s=2, first_token_s=10, idle_s=3)
    call.stream_head()
    await until(lambda: asked.run.sink.kinds)
    for _ in range(3):
        asked.clock.advance(3.2)
        call.chunk(keepalive)
        await arrives()
    assert asked.run.ending is None
    asked.clock.advance(0.5)
    await asked.fails("10 s", "first_token_s")


@pytest_twisted.ensureDeferred
async def test_the_first_token_has_as_long_as_the_head_unless_it_is_said(asked: Asked) -> None:
    call = await chat(asked, first_byte_s=5)
    asked.clock.advance(4)
    call.stream_head()
    await until(lambda: asked.run.sink.kinds)
    asked.clock.advance(0.9)
    assert asked.run.ending is None
    asked.clock.advance(0.2)
    assert (await asked.fails("5 s", "first_token_s")).retryable is True


@pytest_twisted.ensureDeferred
async def test_empty_chunks_count_where_the_target_says_so(asked: Asked) -> None:
    call = await chat(asked, idle_s=3, idle_by="bytes")
    call.stream_head()
    call.words("Hello")
    await until(lambda: asked.run.sink.text())
    for _ in range(4):
        asked.clock.advance(2)
        call.chunk(b": ping\n\n")
        await arrives()
    call.end()
    assert (await asked.run.ended())[0] == "completed"


@pytest.mark.parametrize("said", [
    delta("x"), delta(reasoning_content="hm"), delta(reasoning="hm"), delta(finish="length"), delta(refusal="no"),
    delta(tool_calls=[{"index": 0, "function": {"arguments": "{"}}]), delta(audio={"data": "AA"}),
    {"choices": [{"index": 0, "text": "old"}]}, {"choices": [], "usage": {"prompt_tokens": 1}},
    {"choices": [{"index": 0, "delta": {"content": ["odd"]}}]}])
@pytest.mark.parametrize("body", [CHAT, WHOLE])
@pytest_twisted.ensureDeferred
async def test_whatever_says_something_counts(asked: Asked, said: dict[str, Any], body: bytes) -> None:
    call = await chat(asked, body)
    call.stream_head()
    call.event(said)
    await until(lambda: asked.run.execution._reader.heard == 1)
    call.words("x")
    call.end()
    await asked.run.ended()


# --- sloppy servers ---


SLOPPY = ["", "text/plain; charset=utf-8", "application/octet-stream"]
ANSWER = {"object": "chat.completion", "model": "m", "choices": [{"index": 0, "finish_reason": "stop", "message": {
    "role": "assistant", "content": "Hello", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]}}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}


@pytest.mark.parametrize("told", SLOPPY)
@pytest.mark.parametrize("body", [CHAT, WHOLE])
@pytest_twisted.ensureDeferred
async def test_a_stream_whose_type_says_nothing_is_known_by_its_first_byte(asked: Asked, told: str, body: bytes) -> None:
    call = await chat(asked, body)
    call.stream_head(told)
    call.chunk(b"\n")
    call.words("Hel", "lo")
    call.end()
    kind, outcome = await asked.run.ended()
    assert (kind, outcome.usage.total_tokens, asked.run.sink.text()) == ("completed", 5, "Hello")
    response = json.loads(asked.run.sink.events[0].started.response)
    assert response["content_type"] == ("text/event-stream" if body is CHAT else "application/json")


@pytest.mark.parametrize("told", [*SLOPPY, "application/json"])
@pytest_twisted.ensureDeferred
async def test_a_whole_answer_to_a_wish_for_a_stream_is_told_as_chunks(asked: Asked, told: str) -> None:
    call = await chat(asked)
    call.whole(json.dumps(ANSWER).encode(), content_type=told)
    kind, outcome = await asked.run.ended()
    assert (kind, outcome.finish_reason, outcome.usage.total_tokens) == ("completed", "stop", 5)
    sink = asked.run.sink
    assert sink.kinds == ["started", "output", "usage"] and sink.text() == "Hello"
    assert json.loads(sink.events[0].started.response)["content_type"] == "text/event-stream"
    chunk = json.loads(sink.events[1].raw)
    assert chunk["object"] == "chat.completion.chunk" and "usage" not in chunk
    assert chunk["choices"][0]["delta"]["tool_calls"][0]["index"] == 0 and "message" not in chunk["choices"][0]
    assert json.loads(sink.events[2].raw) == {"object": "chat.completion.chunk", "model": "m", "choices": [],
                                              "usage": ANSWER["usage"]}


@pytest_twisted.ensureDeferred
async def test_half_an_emoji_in_a_whole_answer_is_told_as_a_chunk(asked: Asked) -> None:
    call = await chat(asked)
    call.whole(b'{"choices":[{"index":0,"finish_reason":"stop","message":{"content":"\\ud83d"}}]}')
    assert (await asked.run.ended())[0] == "completed"
    assert json.loads(asked.run.sink.events[1].raw)["choices"][0]["delta"]["content"] == "\ud83d"


@pytest.mark.parametrize("told", [*SLOPPY, "application/json"])
@pytest.mark.parametrize("body", [CHAT, WHOLE])
@pytest.mark.parametrize(("error", "status", "retryable"), [
    ({"error": {"message": "out of memory", "code": 503}}, 503, True), ({"error": "out of memory"}, 0, False),
    ({"object": "error", "message": "out of memory", "code": 400}, 400, False)])
@pytest_twisted.ensureDeferred
async def test_an_error_with_a_status_of_200_is_an_error(
        asked: Asked, told: str, body: bytes, error: dict[str, Any], status: int, retryable: bool) -> None:
    call = await chat(asked, body)
    call.whole(json.dumps(error).encode(), content_type=told)
    outcome = await asked.fails("out of memory", status=status)
    assert outcome.retryable is retryable and json.loads(outcome.upstream_body) == error
    assert asked.run.sink.kinds == ["started"]


@pytest_twisted.ensureDeferred
async def test_an_error_before_the_first_chunk_of_a_stream_may_be_tried_elsewhere(asked: Asked) -> None:
    call = await chat(asked)
    call.stream_head()
    call.event({"error": {"message": "engine dead", "code": 500}})
    assert (await asked.fails("engine dead", status=500)).retryable is True


ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}


@pytest_twisted.ensureDeferred
async def test_a_role_alone_does_not_rule_out_another_node(asked: Asked) -> None:
    """vLLM sends it before it reads the prompt."""
    call = await chat(asked)
    call.stream_head()
    call.event(ROLE)
    await arrives()
    assert asked.run.sink.kinds == ["started"]
    call.close()
    assert (await asked.fails("broke off")).retryable is True
    assert asked.run.sink.kinds == ["started"]


@pytest_twisted.ensureDeferred
async def test_a_role_is_told_with_what_is_said_first_and_none_is_lost(asked: Asked) -> None:
    call = await chat(asked)
    call.stream_head()
    for _ in range(2):
        call.event(ROLE)
        await arrives()
    call.words("Hello")
    await until(lambda: len(asked.run.sink.events) == 4)
    assert [json.loads(event.raw) for event in asked.run.sink.events[1:]] == [ROLE, ROLE, delta("Hello")]
    call.close()
    assert (await asked.fails("broke off")).retryable is False


@pytest_twisted.ensureDeferred
async def test_an_answer_that_says_nothing_is_told_whole_all_the_same(asked: Asked) -> None:
    call = await chat(asked)
    call.stream_head()
    call.event(ROLE)
    await arrives()
    call.event(b"[DONE]")
    call.send(b"0\r\n\r\n")
    assert (await asked.run.ended())[0] == "completed"
    assert asked.run.sink.kinds == ["started", "output"]


@pytest_twisted.ensureDeferred
async def test_what_came_before_an_error_in_the_same_read_is_told(asked: Asked) -> None:
    call = await chat(asked)
    call.stream_head()
    await until(lambda: asked.run.sink.kinds)
    call.chunk(b"data: " + json.dumps(delta("Hello")).encode() + b'\n\ndata: {"error":{"message":"dead","code":500}}\n\n')
    outcome = await asked.fails("dead", status=500)
    assert asked.run.sink.text() == "Hello" and outcome.retryable is False


@pytest.mark.parametrize(("headers", "seconds"), [
    ({"Retry_After": "7"}, 7.0), ({"retry_after_ms": "1500"}, 1.5), ({"retry_after_ms": "250", "Retry_After": "1"}, 0.25),
    ({"Retry_After": "soon"}, 0.0), ({"Retry_After": "-5"}, 0.0), ({"Retry_After": "1e9"}, 0.0), ({}, 0.0),
    ({"Retry_After": "Tue, 01 Dec 2020 00:00:00 GMT"}, 0.0)])
@pytest_twisted.ensureDeferred
async def test_what_a_backend_asks_us_to_wait_is_kept(asked: Asked, headers: dict[str, str], seconds: float) -> None:
    call = await chat(asked)
    call.whole(b'{"error":{"message":"full"}}', "429 Slow Down", **headers)
    outcome = await asked.fails("full", status=429)
    assert (outcome.retry_after_s, outcome.retryable) == (seconds, True)
