"""The OpenAI face: what its clients depend on, byte by byte over a memory wire."""

import json

import pytest

from iop import events
from iop.errors import HistoryUnavailable, QueueFull, UpstreamError
from iop.proto import run_pb2
from iop.proto.run_pb2 import CHANNEL_REASONING, CHANNEL_STDERR, CHANNEL_STDOUT
from iop.testing.edge import script
from tests.edge.models.chats import ASK, CHAT, DONE, STREAM, WITH_USAGE, chunk, chunks, failure, usage_chunk


def test_an_unknown_model_is_not_found(world):
    for answer in (world.call("GET", "/v1/models/no/such"), world.call("POST", CHAT, {**ASK, "model": "no"})):
        assert (answer.status, answer.code) == (404, "model_not_found")
        assert answer.json["error"]["param"] == "model"
    assert not world.edge.runs_by_id


# --- what is submitted

def test_the_body_travels_whole_and_as_it_came(world):
    body = json.dumps({**ASK, "top_k": 1.50, "unknown": {"deep": [1]}}, indent=1).encode()
    world.chatting(body)
    run = world.edge.last
    assert run.request.body == body
    assert (run.request.api, run.request.adapter, run.request.target) == ("chat/completions", "openai", "tiny")
    assert (run.record.face, run.record.principal) == ("openai", "op")


def test_a_node_can_be_named(world):
    world.edge.scripts["org/big"] = script(chunk("a"))
    answer = world.call("POST", CHAT, {**ASK, "model": "n1/openai/org/big"})
    assert (answer.status, answer.headers["x-iop-node"]) == (200, "n1")
    world.edge.node("n1").draining = True
    assert world.call("POST", CHAT, {**ASK, "model": "n1/openai/tiny"}).code == "no_node_available"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": "tiny"}', b'{"model": 1, "messages": []}',
                                  b'{"model": "tiny", "messages": "x"}', b'{"model": "tiny", "messages": [], "stream": "y"}',
                                  b'{"model": "tiny", "model": "tiny", "messages": []}', b"NaN"])
def test_a_bad_body_is_an_invalid_request(world, body):
    answer = world.call("POST", CHAT, body)
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert answer.json["error"]["type"] == "invalid_request_error"


def test_a_body_may_have_the_configured_size_and_no_more(world):
    wire = world.chatting({**ASK, "messages": [{"role": "user", "content": "x" * 3_000_000}]})
    assert len(world.edge.last.request.body) > 3_000_000
    wire.leave()
    wire = world.wire()
    wire.send(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nx-api-key: {world.op}\r\n"
              f"Content-Length: {32 * 1024 * 1024 + 1}\r\n\r\n".encode())
    assert wire.answer().code == "too_large"


def test_a_program_needs_its_scope(world):
    answer = world.call("POST", CHAT, {**ASK, "model": "echo"}, world.models)
    assert (answer.status, answer.code) == (403, "permission_denied")


# --- refusals

def test_every_refusal_carries_a_request_id(world):
    for answer in (world.call("POST", CHAT, ASK, "wrong"), world.call("GET", "/v1/nothing"), world.call("GET", CHAT)):
        assert answer.status in (401, 404, 405)
        assert answer.headers["x-request-id"].startswith("req_")
    assert world.call("GET", "/v1/nothing", x_request_id="client-id-0001").headers["x-request-id"] == "client-id-0001"


def test_a_key_of_another_request_is_a_conflict_that_is_not_to_be_tried_again(world):
    world.edge.scripts["tiny"] = script(chunk("a"))
    assert world.call("POST", CHAT, ASK, idempotency_key="k").status == 200
    answer = world.call("POST", CHAT, {**ASK, "messages": []}, idempotency_key="k")
    assert (answer.status, answer.code, answer.headers["x-should-retry"]) == (409, "conflict", "false")


@pytest.mark.parametrize(("error", "status", "code", "kind"), [
    (QueueFull(), 429, "rate_limit_exceeded", "rate_limit_error"),
    (HistoryUnavailable(), 503, "history_unavailable", "server_error")])
def test_a_refusal_tells_when_to_come_back(world, error, status, code, kind):
    world.edge.refusal = error
    answer = world.call("POST", CHAT, STREAM)
    assert (answer.status, answer.code, answer.json["error"]["type"]) == (status, code, kind)
    assert int(answer.headers["retry-after"]) > 0
    assert "x-should-retry" not in answer.headers


def test_a_known_model_without_a_ready_node_is_not_an_unknown_one(world):
    world.edge.node("n1").state = "down"
    answer = world.call("POST", CHAT, ASK)
    assert (answer.status, answer.code) == (503, "no_node_available")
    assert answer.headers["retry-after"]
    assert not world.edge.runs_by_id


# --- streams of a backend that speaks this API

def test_the_backends_chunks_come_byte_for_byte(world):
    odd, plain = chunk("a", spaces="  "), chunk("b", "stop")
    world.edge.scripts["tiny"] = script(odd, plain, usage_chunk())
    wire = world.chatting()
    assert wire.streamed() == b"data: %b\n\ndata: %b\n\n" % (odd.raw, plain.raw) + DONE


def test_usage_is_for_who_asked_for_it(world):
    world.edge.scripts["tiny"] = script(chunk("a", "stop"), usage_chunk())
    assert chunks(world.chatting(WITH_USAGE).streamed())[-1]["choices"] == []
    assert all(one["choices"] for one in chunks(world.chatting({**STREAM, "stream_options": {}}).streamed()))


def test_a_chunk_with_line_ends_stays_one_frame(world):
    world.edge.scripts["tiny"] = script(events.output("a", raw=b'{"choices":[\n]\r\n,"id: 7":1}'))
    body = world.chatting().streamed()
    assert [line[:5] for line in body.split(b"\n") if line] == [b"data:", b"data:"]


def test_the_stream_has_no_ids_and_its_headers(world):
    world.edge.scripts["tiny"] = script(chunk("a"))
    wire = world.chatting(x_request_id="from-the-client")
    head = wire.received.partition(b"\r\n\r\n")[0].decode().lower()
    run = world.edge.last
    for line in ("content-type: text/event-stream; charset=utf-8", "cache-control: no-cache", "x-accel-buffering: no",
                 "connection: keep-alive",
                 f"x-iop-run-id: {run.record.run_id}", "x-iop-node: n1", "x-iop-queue-ms: ", "x-request-id: from-the-client"):
        assert line in head, line
    assert "content-encoding" not in head
    body = wire.streamed()
    assert b"\nid:" not in body
    assert not body.startswith(b"id:")
    assert b"event:" not in body


def test_nothing_goes_out_before_the_first_output(world):
    wire = world.chatting()
    run = world.edge.last
    run.start()
    assert not wire.received
    run.emit(chunk("a"))
    assert wire.received.startswith(b"HTTP/1.1 200 ")
    wire.streamed()
    run.emit(chunk("b"), chunk("c"))
    assert wire.received.count(b"\r\n") == 2     # one chunk, one write
    run.end("completed")
    assert wire.streamed().endswith(DONE)


def test_after_ten_seconds_a_comment_keeps_the_connection(world):
    wire = world.chatting()
    world.clock.advance(9)
    assert not wire.received
    world.clock.advance(1.1)
    assert wire.received.startswith(b"HTTP/1.1 200 ")
    assert wire.streamed() == b": ping\n\n"
    for _ in range(16):
        world.clock.advance(1)
        world.site.sweep()
    assert wire.streamed() == b": ping\n\n"
    world.edge.last.start()
    world.edge.last.end("failed", events.outcome_of(UpstreamError("gone", status=500, body=b'{"error":{"message":"own"}}')))
    assert failure(wire.streamed())["message"] == "own"
    assert not world.clock.getDelayedCalls()


# --- one answer

def test_an_answer_in_one_piece_has_a_limit_and_its_run_is_stopped_there(world):
    wire = world.chatting(ASK)
    run = world.edge.last
    run.start()
    for _ in range(33):
        run.emit(events.output("x" * (1024 * 1024), CHANNEL_STDOUT))
    answer = wire.answer()
    assert (answer.status, answer.code, answer.headers["x-should-retry"]) == (502, "output_limit", "false")
    assert "stream" in answer.json["error"]["message"] and answer.headers["x-iop-run-id"]
    assert [reason for _, reason in run.cancels] == [
        "The answer has more than 32 MiB, which is the limit of one in one piece."]
    assert run.cursors[-1].closed


def test_a_whole_answer_is_the_backends_own(world):
    raw = b'{"id":"up", "choices":[{"message":{"content":"hi","tool_calls":null}}],  "new": 1.50}'
    world.edge.scripts["tiny"] = script(events.output("hi", raw=raw))
    answer = world.call("POST", CHAT, ASK)
    assert (answer.status, answer.body) == (200, raw)
    assert answer.headers["x-iop-node"] == "n1"


def test_a_program_answers_as_a_chat(world):
    usage = run_pb2.Usage(prompt_tokens=1, completion_tokens=2, total_tokens=3)
    outcome = run_pb2.Outcome(code="ok", finish_reason="length", usage=usage)

    def play(run):
        run.start()
        run.emit(events.output("hm", CHANNEL_REASONING), events.output("a", CHANNEL_STDOUT))
        run.emit(events.output("warning", CHANNEL_STDERR), events.output("b"))
        run.end("completed", outcome)
    world.edge.scripts["echo"] = play
    answer = world.call("POST", CHAT, {**ASK, "model": "echo"}).json
    assert answer["choices"] == [{"index": 0, "finish_reason": "length", "logprobs": None, "message": {
        "role": "assistant", "content": "ab", "reasoning_content": "hm"}}]
    assert answer["usage"] == {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    assert answer["object"] == "chat.completion"


# --- streams that are made here

def test_a_programs_stream_is_made_of_chunks(world):
    call = run_pb2.RuntimeEvent(at_us=1, tool_call=run_pb2.ToolCall(call_id="1", name="bash", arguments=b'{"x":1}'))

    def play(run):
        run.start()
        run.emit(events.output("hm", CHANNEL_REASONING), events.output("a\n", CHANNEL_STDOUT), call)
        run.emit(events.output("oops", CHANNEL_STDERR))
        run.end("completed", run_pb2.Outcome(code="ok", usage=run_pb2.Usage(total_tokens=3)))
    world.edge.scripts["echo"] = play
    told = chunks(world.chatting({**WITH_USAGE, "model": "echo"}).streamed())
    assert [one["choices"][0]["delta"] for one in told[:-1]] == [
        {"role": "assistant", "content": ""}, {"reasoning_content": "hm"}, {"content": "a\n"}, {}, {}]
    assert [one["choices"][0]["finish_reason"] for one in told[:-1]] == [None, None, None, None, "stop"]
    assert told[3]["x_iop"]["name"] == "bash"
    assert (told[-1]["choices"], told[-1]["usage"]["total_tokens"]) == ([], 3)
    assert all(one["usage"] is None for one in told[:-1])
    assert len({(one["id"], one["created"], one["model"], one["object"]) for one in told}) == 1


def test_a_run_without_output_is_an_empty_answer(world):
    world.edge.scripts["echo"] = script()
    told = chunks(world.chatting({**STREAM, "model": "echo"}).streamed())
    assert [one["choices"][0]["delta"] for one in told] == [{"role": "assistant", "content": ""}, {}]


def test_a_slow_reader_pauses_and_loses_nothing(world):
    wire = world.chatting()
    run = world.edge.last
    run.start()
    run.emit(chunk("0"))
    wire.streamed()
    wire.transport.producer.pauseProducing()
    for number in range(1, 100):
        run.emit(chunk(str(number)))
    run.end("completed")
    assert not wire.received
    wire.transport.producer.resumeProducing()
    told = chunks(wire.streamed())
    assert [one["choices"][0]["delta"]["content"] for one in told] == [str(number) for number in range(1, 100)]
