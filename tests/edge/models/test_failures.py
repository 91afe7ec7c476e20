"""Runs that end badly, as clients of the OpenAI face are told: the status, the body, and whether to try again."""

import json

import pytest

from iop import events
from iop.errors import ProgramFailed, RunTimeout, UpstreamError
from iop.proto.run_pb2 import Gap, RuntimeEvent
from iop.testing.edge import script
from tests.edge.models.chats import ASK, CHAT, STREAM, chunk, failure

LLAMA = "request (1000019 tokens) exceeds the available context size (4096 tokens), try increasing it"
VLLM = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."


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


@pytest.mark.parametrize("status", [600, 999, 4294967295])
def test_a_status_that_http_does_not_have_is_a_bad_gateway(world, status):
    refuses(world, status, {"error": {"message": "no"}})
    assert world.call("POST", CHAT, ASK).status == 502


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


def test_failing_programs_are_told_with_their_sentence(world):
    world.edge.scripts["echo"] = script(error=ProgramFailed("It ended with exit code 3."))
    answer = world.call("POST", CHAT, {**ASK, "model": "echo"})
    assert (answer.status, answer.code, answer.json["error"]["message"]) == (
        502, "program_failed", "It ended with exit code 3.")


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
