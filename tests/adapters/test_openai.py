"""The openai adapter before a backend with every kind of manners."""

from __future__ import annotations

import json
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.task import Clock

from iop.adapters import openai, vllm
from iop.adapters.wire.answers import joins
from iop.errors import Cancelled, ConfigError
from iop.proto import run_pb2
from iop.proto.run_pb2 import CHANNEL_REASONING, CHANNEL_TEXT
from iop.servers import TargetHealth
from tests.adapters.asking import Asked
from tests.adapters.kit import Sink, Started, Tools, target, until
from tests.adapters.upstream import Call, Upstream, delta

JOINED = {"answers": "joined"}
CHAT = {"model": "alias", "messages": [{"role": "user", "content": "hi"}], "stream": True, "seed": 1.50, "x": {"y": [1e2]}}


def started_with_words(call: Call) -> None:
    call.stream_head()
    call.words("Hello", " world")


@pytest_twisted.ensureDeferred
async def test_a_streaming_chat_arrives_chunk_by_chunk_with_the_backends_bytes(asked: Asked) -> None:
    call = await asked.ask(body=json.dumps(CHAT).encode(), api="chat/completions")
    call.stream_head()
    await until(lambda: asked.run.sink.kinds == ["started"])
    call.words("Hel", "lo")
    await until(lambda: asked.run.sink.text() == "Hello")
    call.event(delta(reasoning_content="hm"))
    call.end()
    kind, outcome = await asked.run.ended()
    assert (kind, outcome.code, outcome.finish_reason, outcome.usage.total_tokens) == ("completed", "ok", "stop", 5)
    sink = asked.run.sink
    assert sink.kinds == ["started", "output", "output", "output", "output", "usage"]
    assert sink.text(CHANNEL_REASONING) == "hm" and sink.text(CHANNEL_TEXT) == "Hello"
    assert sink.events[1].raw == json.dumps(delta("Hel")).encode()
    assert json.loads(sink.events[0].started.response) == {"status": 200, "content_type": "text/event-stream"}


@pytest_twisted.ensureDeferred
async def test_the_body_travels_whole_but_for_the_model_and_the_wish_for_usage(asked: Asked) -> None:
    call = await asked.ask(settings={"model": "backend-name"}, body=json.dumps(CHAT).encode(), api="chat/completions")
    line, headers, body = asked.upstream.requests[0]
    assert line == "POST /v1/chat/completions HTTP/1.1"
    assert headers["accept-encoding"] == "identity" and headers["content-type"] == "application/json"
    assert json.loads(body) == CHAT | {"model": "backend-name", "stream_options": {"include_usage": True}}
    assert b'"seed":1.5,"x":{"y": [100.0]}' in body
    call.stream_head()
    call.end()
    await asked.run.ended()


@pytest_twisted.ensureDeferred
async def test_a_prompt_becomes_a_streaming_chat(asked: Asked) -> None:
    call = await asked.ask(prompt="hi")
    assert json.loads(asked.upstream.requests[0][2]) == {
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True,
        "stream_options": {"include_usage": True}}
    call.stream_head()
    call.end()
    await asked.run.ended()


@pytest_twisted.ensureDeferred
async def test_a_body_that_does_not_stream_is_one_output_with_the_whole_reply(asked: Asked) -> None:
    call = await asked.ask(body=b'{"model":"a","messages":[]}', api="chat/completions")
    choice = {"index": 0, "message": {"role": "assistant", "content": "hey"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    reply = json.dumps({"choices": [choice], "usage": usage}).encode()
    call.whole(reply)
    kind, outcome = await asked.run.ended()
    assert (kind, outcome.finish_reason, outcome.usage.completion_tokens) == ("completed", "stop", 2)
    assert asked.run.sink.kinds == ["started", "output"]
    assert (asked.run.sink.events[1].output, asked.run.sink.events[1].raw) == ("hey", reply)


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


@pytest.mark.parametrize("how", ["close", "no marker", "no finish", "error"])
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
    elif how == "no finish":
        call.event(b"[DONE]")
        await asked.fails("finish_reason", status=200)
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


@pytest_twisted.ensureDeferred
async def test_all_chunks_of_one_read_are_one_emit(asked: Asked) -> None:
    call = await asked.ask()
    call.stream_head()
    await until(lambda: asked.run.sink.kinds)
    call.words(*(str(number) for number in range(50)))
    await until(lambda: len(asked.run.sink.events) == 51)
    assert len(asked.run.sink.batches) <= 3
    call.end()
    await asked.run.ended()


@pytest_twisted.ensureDeferred
async def test_the_end_of_a_long_prompt_does_not_wait_for_an_acknowledgement(asked: Asked) -> None:
    await asked.ask()
    assert [reader.getTcpNoDelay() for reader in reactor.getReaders() if hasattr(reader, "connector")] == [True]
    asked.run.execution.stop(Cancelled())


@pytest_twisted.ensureDeferred
async def test_a_connection_is_used_again(asked: Asked) -> None:
    call = await asked.ask()
    call.stream_head()
    call.end()
    await asked.run.ended()
    adapter, first = asked.run.adapter, asked.run
    again = adapter.execute(first.execution._spec, first.sink)
    await until(lambda: len(asked.upstream.calls) == 2)
    assert asked.upstream.connections == 1
    again.stop(Cancelled())


async def kept(asked: Asked, **request: Any) -> tuple[Call, Any]:
    """A second run's call on the connection that a first one left."""
    call = await asked.ask(**request)
    call.stream_head()
    call.end()
    await asked.run.ended()
    sink = Sink()
    sink.execution = asked.run.adapter.execute(asked.run.execution._spec, sink)
    await until(lambda: len(asked.upstream.calls) == 2)
    assert asked.upstream.connections == 1
    return asked.upstream.calls[1], sink.execution


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest_twisted.ensureDeferred
async def test_a_request_that_meets_the_close_of_a_kept_connection_is_sent_once_more(asked: Asked, how: str) -> None:
    call, run = await kept(asked)
    getattr(call, how)()
    await until(lambda: len(asked.upstream.calls) == 3)
    assert asked.upstream.connections == 2
    assert asked.upstream.requests[1] == asked.upstream.requests[2]
    asked.upstream.calls[2].stream_head()
    asked.upstream.calls[2].end()
    assert (await run.finished)[0] == "completed"


@pytest_twisted.ensureDeferred
async def test_a_new_connection_that_is_closed_as_well_is_the_end(asked: Asked) -> None:
    call, run = await kept(asked)
    call.close()
    await until(lambda: len(asked.upstream.calls) == 3)
    asked.upstream.calls[2].close()
    assert (await run.finished)[1].code == "upstream_error"
    assert len(asked.upstream.calls) == 3


@pytest_twisted.ensureDeferred
async def test_what_must_not_be_retried_is_never_sent_twice(asked: Asked) -> None:
    call, run = await kept(asked, prompt="hi", retry_safe=False)
    call.close()
    assert (await run.finished)[1].retryable
    assert len(asked.upstream.calls) == 2


@pytest_twisted.ensureDeferred
async def test_a_reply_that_has_begun_is_not_asked_for_again(asked: Asked) -> None:
    call, run = await kept(asked)
    call.send(b"HTTP/1.1 2")
    await until(lambda: asked.run.adapter is not None)
    call.close()
    assert (await run.finished)[1].code == "upstream_error"
    assert len(asked.upstream.calls) == 2


@pytest_twisted.ensureDeferred
async def test_a_stop_on_a_kept_connection_is_a_stop(asked: Asked) -> None:
    call, run = await kept(asked)
    run.stop(Cancelled())
    assert (await run.finished)[0] == "cancelled"
    await until(lambda: not call.open)
    assert len(asked.upstream.calls) == 2


@pytest.mark.parametrize("phase", ["asked", "started", "streaming", "after an error's head"])
@pytest_twisted.ensureDeferred
async def test_a_stop_closes_the_connection_at_once(asked: Asked, phase: str) -> None:
    call = await asked.ask()
    if phase == "started":
        call.stream_head()
        await until(lambda: asked.run.sink.kinds)
    elif phase == "streaming":
        started_with_words(call)
        await until(lambda: len(asked.run.sink.kinds) > 1)
    elif phase == "after an error's head":
        call.head("500 Oops", Content_Length="1000")
        call.send(b"half")
        await until(lambda: asked.run.execution._pieces)
    asked.run.execution.stop(Cancelled())
    await until(lambda: not call.open, 1)
    assert (await asked.run.ended())[0] == "cancelled"


@pytest_twisted.ensureDeferred
async def test_a_stop_while_connecting_ends_the_attempt(upstream: Upstream) -> None:
    run = Started(openai.factory, Tools(Clock()), target("m", url=upstream.url))
    run.execution.stop(Cancelled())        # in the same turn: the connection cannot be there yet
    assert (await run.ended())[0] == "cancelled"
    assert not upstream.requests
    await run.close()


# --- upstreams with bad manners ---


@pytest.mark.parametrize(("status", "retryable"), [("429 Slow Down", True), ("500 Oops", True), ("503 Loading", True),
                                                   ("400 Bad", False), ("404 None", False)])
@pytest_twisted.ensureDeferred
async def test_a_refusal_keeps_its_status_and_body(asked: Asked, status: str, retryable: bool) -> None:
    call = await asked.ask()
    body = b'{"error":{"message":"the very words","type":"t","code":"c"}}'
    call.whole(body, status)
    outcome = await asked.fails("the very words", status.split()[0], status=int(status.split()[0]))
    assert outcome.upstream_body == body and outcome.retryable is retryable
    assert not asked.run.sink.events, "nothing was started"


@pytest_twisted.ensureDeferred
async def test_a_redirect_is_not_followed(asked: Asked) -> None:
    call = await asked.ask()
    call.whole(b"", "302 Found", Location=asked.upstream.url + "/elsewhere")
    await asked.fails("302", "redirect", status=302)
    assert len(asked.upstream.requests) == 1


@pytest_twisted.ensureDeferred
async def test_an_endless_error_body_is_cut(asked: Asked) -> None:
    call = await asked.ask()
    call.head("500 Oops", Transfer_Encoding="chunked")
    for _ in range(70):
        call.chunk(b"x" * 1024)
    outcome = await asked.fails("500", status=500)
    assert len(outcome.upstream_body) == 64 * 1024
    await until(lambda: not call.open)


@pytest_twisted.ensureDeferred
async def test_a_wrong_content_type_is_refused(asked: Asked) -> None:
    call = await asked.ask()
    call.whole(b"<html>", content_type="text/html")
    await asked.fails("text/html", "text/event-stream", status=200)


@pytest_twisted.ensureDeferred
async def test_a_compressed_reply_is_refused_and_not_inflated(asked: Asked) -> None:
    call = await asked.ask()
    call.head(Content_Type="text/event-stream", Content_Encoding="gzip", Transfer_Encoding="chunked")
    call.chunk(b"\x1f\x8b" + b"\0" * 1000)
    await asked.fails("gzip", "identity", status=200)
    await until(lambda: not call.open)


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest_twisted.ensureDeferred
async def test_a_stream_cut_inside_a_chunk_is_a_failure_that_is_not_retried(asked: Asked, how: str) -> None:
    call = await asked.ask()
    started_with_words(call)
    await until(lambda: asked.run.sink.text() == "Hello world")
    call.send(b"ff\r\ndata: {")
    getattr(call, how)()
    assert (await asked.fails("broke off")).retryable is False


@pytest_twisted.ensureDeferred
async def test_a_stream_without_its_end_marker_is_never_completed(asked: Asked) -> None:
    call = await asked.ask()
    started_with_words(call)
    call.send(b"0\r\n\r\n")
    await asked.fails("end marker", status=200)


@pytest_twisted.ensureDeferred
async def test_a_stream_that_is_ended_by_the_close_alone_needs_its_end_marker(asked: Asked) -> None:
    call = await asked.ask()
    call.head(Content_Type="text/event-stream", Connection="close")
    call.send(b"data: " + json.dumps(delta("x")).encode() + b"\n\ndata: [DONE]\n\n")
    call.close()
    assert (await asked.run.ended())[0] == "completed"
    assert asked.run.sink.text() == "x"


@pytest_twisted.ensureDeferred
async def test_a_backend_that_hangs_after_its_last_word_is_left(asked: Asked) -> None:
    call = await asked.ask()
    started_with_words(call)
    call.event(b"[DONE]")
    await until(lambda: asked.run.execution._reader.done)
    asked.clock.advance(1.1)
    assert (await asked.run.ended())[0] == "completed"
    await until(lambda: not call.open)


@pytest_twisted.ensureDeferred
async def test_an_error_inside_the_stream_is_passed_on(asked: Asked) -> None:
    call = await asked.ask()
    started_with_words(call)
    call.event({"error": {"message": "out of memory", "code": 500}})
    assert b"out of memory" in (await asked.fails("out of memory", status=500)).upstream_body


@pytest_twisted.ensureDeferred
async def test_a_chunk_that_is_not_json_ends_the_run(asked: Asked) -> None:
    call = await asked.ask()
    call.stream_head()
    call.event(b"{not json")
    await asked.fails("not JSON")


@pytest_twisted.ensureDeferred
async def test_a_hang_before_the_head_is_ended_by_the_first_byte_limit(asked: Asked) -> None:
    call = await asked.ask(settings={"first_byte_s": 7})
    asked.clock.advance(6.9)
    assert asked.run.ending is None
    asked.clock.advance(0.2)
    assert (await asked.fails("7 s", "first_byte_s")).retryable is True
    await until(lambda: not call.open)


@pytest_twisted.ensureDeferred
async def test_a_hang_behind_the_head_is_ended_by_the_first_byte_limit(asked: Asked) -> None:
    call = await asked.ask(settings={"first_byte_s": 7})
    call.stream_head()
    await until(lambda: asked.run.sink.kinds)
    asked.clock.advance(7.1)
    await asked.fails("first_byte_s")


@pytest_twisted.ensureDeferred
async def test_a_hang_in_the_stream_is_ended_by_the_idle_limit(asked: Asked) -> None:
    call = await asked.ask(settings={"idle_s": 3})
    started_with_words(call)
    await until(lambda: asked.run.sink.text())
    asked.clock.advance(2)
    call.words("!")
    await until(lambda: "!" in asked.run.sink.text())
    asked.clock.advance(2)
    assert asked.run.ending is None, "each read counts from anew"
    asked.clock.advance(1.1)
    assert (await asked.fails("3 s", "idle_s")).retryable is False


@pytest_twisted.ensureDeferred
async def test_a_pause_stops_the_idle_clock(asked: Asked) -> None:
    call = await asked.ask(settings={"idle_s": 3})
    started_with_words(call)
    await until(lambda: asked.run.sink.text())
    asked.run.execution.pauseProducing()
    asked.clock.advance(10)
    assert asked.run.ending is None
    asked.run.execution.resumeProducing()
    asked.clock.advance(2)
    call.end()
    assert (await asked.run.ended())[0] == "completed"


@pytest.mark.parametrize("line", [b"X-A: " + b"a" * 1000 + b"\r\n", b"X: y\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
@pytest_twisted.ensureDeferred
async def test_an_endless_head_is_ended_by_us(asked: Asked, line: bytes) -> None:
    call = await asked.ask()
    call.send(b"" if line.startswith(b"HTTP") else b"HTTP/1.1 200 OK\r\n")
    for _ in range(70 * 1024 // len(line)):
        call.send(line)
    await asked.fails("65536", "headers")
    await until(lambda: not call.open)


@pytest.mark.parametrize("head", [b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 two hundred\r\n\r\n",
                                  b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
                                  b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"])
@pytest_twisted.ensureDeferred
async def test_what_is_not_http_is_a_typed_error(asked: Asked, head: bytes) -> None:
    call = await asked.ask()
    call.send(head)
    await asked.fails()


@pytest_twisted.ensureDeferred
async def test_a_line_over_the_limit_ends_the_run(asked: Asked) -> None:
    call = await asked.ask()
    call.stream_head()
    call.chunk(b"data: " + b"x" * (9 * 1024 * 1024))
    await asked.fails("limit of one line")


@pytest_twisted.ensureDeferred
async def test_a_closed_port_is_a_typed_error_that_can_be_tried_again(asked: Asked) -> None:
    await asked.upstream.stop()
    asked.run = Started(openai.factory, Tools(asked.clock), target("m", url=asked.upstream.url))
    assert (await asked.fails("cannot be reached")).retryable is True


@pytest_twisted.ensureDeferred
async def test_a_connection_closed_without_a_word_can_be_tried_again(asked: Asked) -> None:
    call = await asked.ask()
    call.close()
    assert (await asked.fails("before it answered")).retryable is True


@pytest.mark.parametrize("body", [b"[]", b"{", b"\xff", b'{"messages": 1', b"[" * 100_000])
@pytest_twisted.ensureDeferred
async def test_a_body_that_is_no_json_object_is_refused_before_the_backend(upstream: Upstream, body: bytes) -> None:
    run = Started(openai.factory, Tools(Clock()), target("m", url=upstream.url), body=body, api="chat/completions")
    kind, outcome = await run.ended()
    assert (kind, outcome.code) == ("failed", "invalid_request")
    assert not upstream.connections


@pytest_twisted.ensureDeferred
async def test_an_api_path_cannot_leave_the_backends_api(upstream: Upstream) -> None:
    run = Started(openai.factory, Tools(Clock()), target("m", url=upstream.url), body=b"{}", api="../../admin")
    assert (await run.ended())[1].code == "invalid_request"


# --- settings and health ---


@pytest.mark.parametrize(("settings", "words"), [
    ({}, ["url"]),
    ({"url": "ftp://x"}, ["url", "http://"]),
    ({"url": "http://u:p@host/v1"}, ["url", "api_key_file"]),
    ({"url": "http://host/v1?x=1"}, ["url"]),
    ({"url": "http://ho st"}, ["url"]),
    ({"url": "http://h/v1", "modle": "x"}, ["modle", "model", "url"]),
    ({"url": "http://h/v1", "idle_s": 0}, ["idle_s", "0"]),
    ({"url": "http://h/v1", "idle_s": "long"}, ["idle_s"]),
    ({"url": "http://h/v1", "headers": {"Host": "x"}}, ["Host"]),
    ({"url": "http://h/v1", "headers": {"X-A": "a\r\nb"}}, ["X-A"]),
    ({"url": "http://h/v1", "health_path": "models"}, ["health_path"]),
    ({"url": "http://h/v1", "api_key_file": "key"}, ["api_key_file", "absolute"]),
])
def test_wrong_settings_name_the_key_and_what_is_allowed(settings: dict[str, Any], words: list[str]) -> None:
    for factory in (openai.factory, vllm.factory):
        with pytest.raises(ConfigError) as caught:
            factory.settings(target("m", **settings))
        for word in words:
            assert word in caught.value.message


MODELS = b'{"data":[{"id":"m","max_model_len":4096}]}'


@pytest.mark.parametrize(("factory", "path"), [(openai.factory, "/v1/models"), (vllm.factory, "/health")])
@pytest_twisted.ensureDeferred
async def test_health_is_asked_where_each_server_has_it(upstream: Upstream, factory: Any, path: str) -> None:
    settings = factory.settings(target("m", url=upstream.url))
    adapter = factory.build({"m": settings}, Tools(reactor))
    asking = adapter.check()
    call = await until(lambda: upstream.calls and upstream.calls[0])
    assert upstream.requests[0][0] == f"GET {path} HTTP/1.1"
    call.whole(b"{}", "503 Loading")
    assert "503" in (await asking)["m"].why_not
    asking = adapter.check()
    call = await until(lambda: len(upstream.calls) > 1 and upstream.calls[1])
    call.whole(MODELS if path == "/v1/models" else b"")
    if path != "/v1/models":                 # the list of models is asked for once more, for the context
        call = await until(lambda: len(upstream.calls) > 2 and upstream.calls[2])
        call.whole(MODELS)
    assert await asking == {"m": TargetHealth(warm=True, context_tokens=4096)}
    await adapter.close()
    await upstream.stop()
    assert "cannot be reached" in (await adapter.check())["m"].why_not


@pytest_twisted.ensureDeferred
async def test_the_api_key_comes_from_a_private_file_and_is_sent_as_a_bearer(asked: Asked, tmp_path: Any) -> None:
    key = tmp_path / "key"
    key.write_text("sk-secret\n")
    key.chmod(0o600)
    call = await asked.ask(settings={"api_key_file": str(key), "headers": {"X-Team": "blue"}})
    headers = asked.upstream.requests[0][1]
    assert (headers["authorization"], headers["x-team"]) == ("Bearer sk-secret", "blue")
    call.stream_head()
    call.end()
    await asked.run.ended()
    key.chmod(0o644)
    with pytest.raises(ConfigError):
        openai.factory.build({"m": openai.factory.settings(target("m", url="http://h/v1", api_key_file=str(key)))},
                             Tools(Clock()))
