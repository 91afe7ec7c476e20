"""The openai adapter before backends with every kind of bad manners."""

from __future__ import annotations

import json

import pytest
import pytest_twisted
from twisted.internet.task import Clock

from iop.adapters import openai
from iop.adapters.wire.chat import StreamReader
from tests.adapters.asking import Asked, started_with_words
from tests.adapters.kit import Started, Tools, target, until
from tests.adapters.upstream import Upstream, delta


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
async def test_an_upgrade_that_nobody_asked_for_is_refused_in_words(asked: Asked) -> None:
    call = await asked.ask()
    call.head("101 Switching Protocols", Upgrade="websocket", Connection="upgrade")
    await asked.fails("goes on in another protocol")


@pytest.mark.parametrize("whole", [True, False])
@pytest_twisted.ensureDeferred
async def test_a_fault_of_ours_in_a_reply_ends_the_run(asked: Asked, monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    def breaks(reader: StreamReader, payload: bytes, at_us: int) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(StreamReader, "_event", breaks)
    call = await asked.ask()
    if whole:                                    # in the very read in which the reply ends
        call.whole(b"data: {}\n\ndata: [DONE]\n\n", content_type="text/event-stream")
    else:
        call.stream_head()
        call.words("hi")
    kind, outcome = await asked.run.ended()
    assert kind == "failed" and "the node's log has the details" in outcome.message


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
