"""The OpenAI face: what its clients depend on (model-apis.md), byte by byte over a memory wire."""

import json

import pytest
from twisted.internet.defer import Deferred

from iop import events
from iop.errors import HistoryUnavailable, ProgramFailed, QueueFull, RunTimeout, UpstreamError
from iop.proto import run_pb2
from iop.proto.run_pb2 import CHANNEL_REASONING, CHANNEL_STDERR, CHANNEL_STDOUT, Gap, RuntimeEvent
from iop.testing.edge import script
from tests.edge.models.conftest import World

CHAT = "/v1/chat/completions"
ASK = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
STREAM = {**ASK, "stream": True}
WITH_USAGE = {**STREAM, "stream_options": {"include_usage": True}}
DONE = b"data: [DONE]\n\n"


def chunk(text, finish=None, spaces=""):
    """A backend's own chunk; with `spaces` in a spelling that we would not make."""
    raw = json.dumps({"id": "up", "object": "chat.completion.chunk", "created": 1, "model": "backend", "x_new_field": [1.50],
                      "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]})
    return events.output(text, raw=raw.replace(" ", spaces or " ").encode())


def usage_chunk():
    usage = run_pb2.Usage(prompt_tokens=1, completion_tokens=2, total_tokens=3)
    return run_pb2.RuntimeEvent(at_us=1, usage=usage, raw=b'{"choices":[],"usage":{"prompt_tokens":1}}')


class ChatWorld(World):
    def chatting(self, body=STREAM, **headers):
        """A chat whose answer is still to come."""
        return self.asking(CHAT, body, **headers)


@pytest.fixture
def world():
    return ChatWorld()


def chunks(body):
    """The chunks of a stream; [DONE] must be there, once and last."""
    assert body.count(DONE) == 1
    assert body.endswith(DONE)
    return [json.loads(line[6:]) for line in body[:-len(DONE)].split(b"\n") if line.startswith(b"data: ")]


def failure(body):
    """The error that a stream ends with."""
    assert DONE not in body
    return json.loads(body.rstrip().split(b"\n")[-1][6:])["error"]


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


# --- failures

def refuses(world, status, body, retryable=False):
    """Let the backend answer so."""
    text = body["error"] if isinstance(body, dict) and isinstance(body.get("error"), str) else "x"
    error = UpstreamError(f"The backend answered {status}. {text}", status=status, body=json.dumps(body).encode(),
                          retryable=retryable)
    world.edge.scripts["tiny"] = lambda run: run.end("failed", events.outcome_of(error))


def test_an_error_of_the_backend_passes_with_its_status_and_body(world):
    own = {"message": "context is too long", "code": "context_length_exceeded", "type": "theirs", "n_ctx": 4096}
    refuses(world, 400, {"error": own})
    for asked in (ASK, STREAM):
        answer = world.call("POST", CHAT, asked)
        assert (answer.status, answer.json) == (400, {"error": {**own, "param": None}})
        assert answer.headers["x-iop-run-id"]
        assert "x-should-retry" not in answer.headers


LLAMA = "request (1000019 tokens) exceeds the available context size (4096 tokens), try increasing it"
VLLM = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."


@pytest.mark.parametrize(("body", "code"), [
    ({"error": {"code": 400, "message": LLAMA, "type": "exceed_context_size_error", "n_ctx": 1}}, "context_length_exceeded"),
    ({"object": "error", "message": VLLM, "type": "BadRequestError", "param": None, "code": 400}, "context_length_exceeded"),
    ({"error": {"message": VLLM, "type": "BadRequestError", "param": None, "code": 400}}, "context_length_exceeded"),
    ({"error": {"code": 400, "message": "top_k is no number", "type": "invalid_request_error"}}, "invalid_request_error"),
    ({"error": {"code": 400, "message": "no type", "type": 7, "param": []}}, None),
    ({"error": VLLM}, "context_length_exceeded"), ({"error": "only text"}, "upstream_error"),
    ({"detail": [{"loc": ["body"]}]}, "upstream_error"), ({"error": {}}, "upstream_error"), ([], "upstream_error")])
def test_whatever_a_backend_calls_an_error_its_client_can_read_and_compare(world, body, code):
    refuses(world, 400, body)
    answer = world.call("POST", CHAT, ASK)
    error = answer.json["error"]
    assert (answer.status, error["code"]) == (400, code)
    assert isinstance(error["message"], str) and error["message"] and isinstance(error["type"], str)
    assert error["param"] is None


@pytest.mark.parametrize("status", [401, 403, 407])
def test_a_backend_that_refuses_the_nodes_key_does_not_look_like_a_refusal_of_the_clients(world, status):
    refuses(world, status, {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key", "type": "auth"}})
    answer = world.call("POST", CHAT, ASK)
    assert (answer.status, answer.code, answer.headers["x-should-retry"]) == (502, "upstream_error", "false")


@pytest.mark.parametrize(("status", "retryable"), [(429, True), (503, True), (500, False)])
def test_what_cannot_be_mended_by_trying_again_says_so(world, status, retryable):
    refuses(world, status, {"error": {"message": "no"}}, retryable=retryable)
    answer = world.call("POST", CHAT, ASK)
    assert (answer.status, "x-should-retry" in answer.headers) == (status, not retryable)


def test_a_backend_that_says_no_json_is_told_in_our_words(world):
    world.edge.scripts["tiny"] = lambda run: run.end("failed", events.outcome_of(
        UpstreamError("The backend answered 502.", status=502, body=b"<html>bad gateway</html>")))
    answer = world.call("POST", CHAT, ASK)
    assert (answer.status, answer.code, answer.json["error"]["message"]) == (
        502, "upstream_error", "The backend answered 502.")


def test_a_backend_that_is_not_there_is_a_bad_gateway(world):
    world.edge.scripts["tiny"] = lambda run: run.end("failed", events.outcome_of(UpstreamError("Connection refused.")))
    assert world.call("POST", CHAT, STREAM).status == 502


def test_a_run_that_began_and_failed_is_not_to_be_tried_again(world):
    world.edge.scripts["tiny"] = script(error=RunTimeout())
    for asked in (ASK, STREAM):
        answer = world.call("POST", CHAT, asked)
        assert (answer.status, answer.code, answer.json["error"]["param"]) == (504, "run_timeout", "run_s")
        assert answer.headers["x-should-retry"] == "false"


def test_a_failure_after_output_is_an_error_object_and_no_done(world):
    wire = world.chatting()
    run = world.edge.last
    run.start()
    run.emit(chunk("a"))
    run.end("failed", events.outcome_of(UpstreamError("The stream was cut.")))
    body = wire.streamed()
    assert failure(body) == {"message": "The stream was cut.", "type": "server_error", "param": None,
                             "code": "upstream_error"}
    assert b"finish_reason\": \"stop" not in body


@pytest.mark.parametrize("kind", ["cancelled", "unknown", "failed"])
def test_no_ending_but_completed_looks_like_success(world, kind):
    world.edge.scripts["tiny"] = script(chunk("a"), ending=kind)
    assert failure(world.chatting().streamed())
    assert world.call("POST", CHAT, ASK).status >= 400


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


# --- the client leaves

@pytest.mark.parametrize("body", [ASK, STREAM])
@pytest.mark.parametrize("phase", ["queued", "started", "output"])
def test_a_client_that_leaves_stops_its_run(world, body, phase):
    wire = world.chatting(body)
    run = world.edge.last
    if phase != "queued":
        run.start()
    if phase == "output":
        run.emit(chunk("a"))
    wire.leave()
    assert [(source.face, reason) for source, reason in run.cancels] == [("openai", "client disconnected")]
    assert run.cursors[-1].closed


def test_a_client_that_leaves_while_the_run_is_stored_stops_it(world):
    stored = world.edge.submitting = Deferred()
    wire = world.chatting()
    wire.leave()
    assert not world.edge.runs_by_id
    stored.callback(None)
    assert [reason for _, reason in world.edge.last.cancels] == ["client disconnected"]


def test_a_client_that_leaves_a_submit_that_fails_leaves_nothing(world):
    stored = world.edge.submitting = Deferred()
    world.edge.refusal = QueueFull()
    wire = world.chatting()
    wire.leave()
    stored.callback(None)
    assert not world.edge.runs_by_id


def test_one_who_leaves_after_the_end_cancels_nothing(world):
    world.edge.scripts["tiny"] = script(chunk("a"))
    wire = world.chatting()
    wire.leave()
    assert not world.edge.last.cancels


def test_a_detached_run_goes_on_for_as_long_as_it_was_told(world):
    wire = world.chatting(x_iop_detach="60")
    run = world.edge.last
    wire.leave()
    assert run.cursors[-1].closed
    world.clock.advance(59)
    assert not run.cancels
    world.clock.advance(2)
    assert run.cancels[0][1] == "client disconnected and did not come back in 60 s"


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "999999999999"])
def test_a_bad_detach_is_refused(world, text):
    assert world.call("POST", CHAT, ASK, x_iop_detach=text).status == 400
    assert not world.edge.runs_by_id


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


def test_failing_programs_are_told_with_their_sentence(world):
    world.edge.scripts["echo"] = script(error=ProgramFailed("It ended with exit code 3."))
    answer = world.call("POST", CHAT, {**ASK, "model": "echo"})
    assert (answer.status, answer.code, answer.json["error"]["message"]) == (
        502, "program_failed", "It ended with exit code 3.")


def test_the_first_of_two_clients_of_one_key_to_leave_does_not_stop_the_others_run(world):
    first, second = (world.chatting(idempotency_key="k") for _ in range(2))
    run = world.edge.last
    assert len(world.edge.runs_by_id) == 1
    run.start()
    first.leave()
    assert not run.cancels
    run.emit(chunk("a"))
    second.leave()
    assert [reason for _, reason in run.cancels] == ["client disconnected"]


def test_a_client_that_left_before_its_run_was_stored_does_not_stop_the_others(world):
    second = world.chatting(idempotency_key="k")
    stored = world.edge.submitting = Deferred()
    first = world.chatting(idempotency_key="k")
    first.leave()
    stored.callback(None)
    assert not world.edge.last.cancels
    second.leave()
    assert world.edge.last.cancels


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_with_a_hole_in_it_is_told_as_an_error(world, stream):
    wire = world.chatting({**ASK, "stream": stream})
    run = world.edge.last
    run.start()
    run.emit(chunk("a"))
    run.emit(RuntimeEvent(gap=Gap(first_seq=3, reason="lost")))
    run.emit(chunk("b"))
    run.end("completed")
    if stream:
        assert failure(wire.streamed())["code"] == "history_gap"
    else:
        answer = wire.answer()
        assert (answer.status, answer.code) == (502, "history_gap")
