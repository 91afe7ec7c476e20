"""Answers in one piece, of backends that are asked to stream them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor

from iop.adapters import openai
from iop.adapters.wire.answers import joins
from iop.errors import Cancelled
from iop.proto import run_pb2
from tests.adapters.asking import MODELS, Asked, started_with_words
from tests.adapters.kit import Tools, target, until
from tests.adapters.upstream import Call, delta

JOINED = {"answers": "joined"}


@pytest.mark.parametrize(("api", "key"), [("chat/completions", "messages"), ("completions", "prompt")])
@pytest_twisted.ensureDeferred
async def test_a_body_that_does_not_stream_is_asked_for_as_a_stream_and_told_whole(asked: Asked, api: str, key: str) -> None:
    call = await asked.ask(body=json.dumps({"model": "a", key: [], "stream": False, "n": 1}).encode(), api=api,
                           settings=JOINED)
    assert json.loads(asked.upstream.requests[0][2]) == {
        "model": "m", key: [], "stream": True, "stream_options": {"include_usage": True}, "n": 1}
    started_with_words(call)
    await until(lambda: asked.run.sink.kinds)
    call.end()
    kind, outcome = await asked.run.ended()
    assert (kind, outcome.finish_reason, outcome.usage.total_tokens) == ("completed", "stop", 5)
    assert asked.run.sink.kinds == ["started", "output"] and asked.run.sink.text() == "Hello world"
    assert json.loads(asked.run.sink.events[1].raw) == {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello world"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}


@pytest.mark.parametrize("body", [{"stream": "yes"}, {"stream": 1}])
@pytest_twisted.ensureDeferred
async def test_a_wish_for_a_stream_that_is_none_is_left_to_the_backend(asked: Asked, body: dict[str, Any]) -> None:
    call = await asked.ask(body=json.dumps(body).encode(), api="chat/completions")
    assert json.loads(asked.upstream.requests[0][2]) == body | {"model": "m"}
    call.whole(b'{"error":{"message":"no"}}', "400 Bad")
    await asked.fails("no", status=400)


PLAIN = {"model": "m", "messages": [], "stream": False}


@pytest.mark.parametrize(("server", "streams"), [("llama.cpp", True), ("uvicorn", False), ("", False)])
@pytest_twisted.ensureDeferred
async def test_an_answer_in_one_piece_is_joined_where_its_server_looks_seldom_for_its_client(
        asked: Asked, server: str, streams: bool) -> None:
    settings = openai.factory.settings(target("m", url=asked.upstream.url))
    adapter = openai.factory.build({"m": settings}, Tools(reactor))
    asking = adapter.check()
    call = await until(lambda: asked.upstream.calls and asked.upstream.calls[0])
    call.whole(MODELS, **({"Server": server} if server else {}))
    await asking
    request = run_pb2.RunRequest(run_id="1", target="m", body=json.dumps(PLAIN).encode(), api="chat/completions")
    assert json.loads(adapter._request(request, settings).body).get("stream") is streams
    await adapter.close()


@pytest.mark.parametrize(("setting", "server", "joined"), [
    ("auto", None, True), ("auto", "", False), ("auto", "llama.cpp", True), ("plain", "llama.cpp", False),
    ("joined", "", True)])
def test_of_a_server_that_nobody_has_heard_of_answers_are_joined(setting: Any, server: str | None, joined: bool) -> None:
    assert joins(setting, server) is joined


@pytest_twisted.ensureDeferred
async def test_an_answer_in_one_piece_has_its_own_time(asked: Asked) -> None:
    await asked.ask(body=json.dumps(PLAIN).encode(), api="chat/completions", settings={"answers": "plain", "whole_s": 90})
    asked.clock.advance(80)
    assert asked.run.ending is None
    asked.clock.advance(11)
    await asked.fails("first_byte_s")


async def plainly(asked: Asked) -> Call:
    return await asked.ask(body=json.dumps(PLAIN).encode(), api="chat/completions", settings=JOINED)


@pytest.mark.parametrize(("status", "refusal"), [
    ("400 Bad", {"error": {"message": "Unknown parameter: 'stream_options'.", "param": "stream_options"}}),
    ("422 Unprocessable", {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"]}]})])
@pytest_twisted.ensureDeferred
async def test_a_backend_that_refuses_to_stream_is_asked_as_the_client_did(asked: Asked, status: str, refusal: Any) -> None:
    (await plainly(asked)).whole(json.dumps(refusal).encode(), status)
    await until(lambda: len(asked.upstream.calls) == 2)
    assert json.loads(asked.upstream.requests[1][2]) == PLAIN
    reply = json.dumps({"choices": [{"index": 0, "message": {"content": "hey"}, "finish_reason": "stop"}]}).encode()
    asked.upstream.calls[1].whole(reply)
    assert (await asked.run.ended())[0] == "completed"
    assert asked.run.sink.kinds == ["started", "output"] and asked.run.sink.events[1].raw == reply


@pytest_twisted.ensureDeferred
async def test_what_is_refused_for_another_reason_is_refused_once(asked: Asked) -> None:
    body = b'{"error":{"message":"too warm","param":"temperature"}}'
    (await plainly(asked)).whole(body, "400 Bad")
    assert (await asked.fails("too warm", status=400)).upstream_body == body
    assert len(asked.upstream.requests) == 1


@pytest_twisted.ensureDeferred
async def test_a_second_refusal_is_the_answer(asked: Asked) -> None:
    (await plainly(asked)).whole(b'{"error":{"message":"no stream"}}', "400 Bad")
    await until(lambda: len(asked.upstream.calls) == 2)
    body = b'{"error":{"message":"no stream at all"}}'
    asked.upstream.calls[1].whole(body, "400 Bad")
    assert (await asked.fails("no stream at all", status=400)).upstream_body == body
    assert len(asked.upstream.requests) == 2


@pytest_twisted.ensureDeferred
async def test_a_stop_reaches_the_second_request(asked: Asked) -> None:
    (await plainly(asked)).whole(b'{"error":{"message":"no stream"}}', "400 Bad")
    await until(lambda: len(asked.upstream.calls) == 2)
    asked.run.execution.stop(Cancelled())
    assert (await asked.run.ended())[0] == "cancelled"
    await until(lambda: not asked.upstream.calls[1].open)


@pytest.mark.parametrize("how", ["close", "no marker", "error"])
@pytest_twisted.ensureDeferred
async def test_no_end_is_invented_for_a_joined_answer(asked: Asked, how: str) -> None:
    call = await plainly(asked)
    started_with_words(call)
    if how == "close":
        call.close()
        await asked.fails("broke off")
    elif how == "no marker":
        call.event(delta(finish="stop"))
        call.send(b"0\r\n\r\n")
        await asked.fails("end marker", status=200)
    else:
        call.event({"error": {"message": "out of memory", "code": 503}})
        assert b"out of memory" in (await asked.fails("out of memory", status=503)).upstream_body
    assert asked.run.sink.kinds == ["started"], "nothing of a half answer is told"


@pytest_twisted.ensureDeferred
async def test_a_stop_of_a_joined_answer_closes_the_connection_at_once(asked: Asked) -> None:
    call = await plainly(asked)
    started_with_words(call)
    await until(lambda: asked.run.sink.kinds)
    asked.run.execution.stop(Cancelled())
    await until(lambda: not call.open, 1)
    assert (await asked.run.ended())[0] == "cancelled"
