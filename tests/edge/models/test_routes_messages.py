"""Anthropic's face over a memory wire: what is submitted, what is refused and how, and its headers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iop import events
from iop.errors import QueueFull, UpstreamError
from iop.proto import run_pb2
from tests.edge.models.conftest import World, chat_chunk, completed, played, started

busy = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])     # the machine, not the code, may be slow
PATH, COUNT = "/v1/messages", "/v1/messages/count_tokens"
ASK = {"model": "tiny", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]}
STREAM = ASK | {"stream": True}


def types(stream: bytes) -> list[str]:
    return [json.loads(line[6:])["type"] for line in stream.split(b"\n") if line.startswith(b"data: ")]


def error_of(answer: Any) -> tuple[int, str]:
    assert answer.json["type"] == "error" and answer.json["error"]["message"]
    return answer.status, answer.json["error"]["type"]


# --- what is submitted

def test_the_body_travels_whole_with_the_headers_and_the_query_that_are_the_backends_business(world: World) -> None:
    body = json.dumps(STREAM | {"system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
                                "future": {"deep": [1.50]}}, indent=1).encode()
    world.asking(PATH + "?beta=true", body, anthropic_version="2023-06-01", anthropic_beta="a-1,b-2",
                 x_claude_code_session_id="s-1", user_agent="claude-cli/2.1.197")
    request = world.edge.last.request
    assert (request.api, request.body, request.query) == ("messages", body, "beta=true")
    assert dict(request.headers) == {"anthropic-version": "2023-06-01", "anthropic-beta": "a-1,b-2",
                                     "x-claude-code-session-id": "s-1"}


def test_one_session_has_one_affinity(world: World) -> None:
    found = []
    for session, text in (("a", "x"), ("a", "y"), ("b", "x")):
        world.asking(PATH, ASK | {"system": text}, x_claude_code_session_id=session)
        found.append(world.edge.last.request.affinity)
    assert found[0] == found[1] != found[2] and all(found)


def test_without_a_session_the_beginning_of_the_prompt_tells_but_for_what_always_differs(world: World) -> None:
    found = []
    for billing, text in (("1", "x"), ("2", "x"), ("1", "y")):
        world.asking(PATH, ASK | {"system": [{"type": "text", "text": f"x-anthropic-billing-header: cch={billing};"},
                                             {"type": "text", "text": text}]})
        found.append(world.edge.last.request.affinity)
    assert found[0] == found[1] != found[2] and all(found)


def test_either_header_carries_the_key(world: World) -> None:
    world.edge.scripts["tiny"] = played(started("chat/completions"), chat_chunk("stop", content="x"))
    for headers in ({"x_api_key": world.op}, {"authorization": f"Bearer {world.op}"}):
        wire = world.wire()
        wire.key = ""
        assert wire.call("POST", PATH, ASK, **headers).status == 200


# --- answers

def test_a_stream_ends_with_message_stop(world: World) -> None:
    wire = world.asking(PATH, STREAM)
    run = world.edge.last
    run.record.state = "running"
    run.emit(started("chat/completions"))
    run.emit(chat_chunk(content="x"))
    assert b"Content-Type: text/event-stream" in wire.received and b"request-id: req_" in wire.received
    assert types(wire.streamed()) == ["message_start", "content_block_start", "content_block_delta"]
    run.emit(chat_chunk("length"))
    run.end("completed", completed("length", prompt_tokens=1, completion_tokens=1, total_tokens=2))
    assert types(wire.streamed()) == ["content_block_stop", "message_delta", "message_stop"]


def test_quiet_streams_are_kept_alive_by_pings(world: World) -> None:
    wire = world.asking(PATH, STREAM)
    world.clock.advance(10)
    assert types(wire.streamed()) == ["ping"]


def test_an_answer_in_one_piece(world: World) -> None:
    world.edge.scripts["tiny"] = played(started("chat/completions"), chat_chunk("stop", content="x"))
    answer = world.call("POST", PATH, ASK)
    assert answer.json["content"] == [{"type": "text", "text": "x"}] and answer.json["model"] == "tiny"
    assert answer.headers["x-iop-node"] == "n1"


def test_warnings_stand_in_a_header(world: World) -> None:
    warning = run_pb2.RuntimeEvent(at_us=1, status=run_pb2.Status(word="warning", detail="The tool 'bash' was left out."))
    world.edge.scripts["tiny"] = played(started("chat/completions"), warning, chat_chunk("stop", content="x"))
    assert world.call("POST", PATH, ASK).headers["x-iop-warning"] == "The tool 'bash' was left out."


def test_a_client_that_leaves_stops_its_run(world: World) -> None:
    wire = world.asking(PATH, STREAM)
    wire.leave()
    assert world.edge.last.cancels


# --- refusals

leaves = st.sampled_from([None, True, 0, -1, 1.5, "", "x", "tiny", "echo", "\u20ac", [], {}, [{}], {"role": "user"}])
json_values = leaves | st.lists(leaves, max_size=3) | st.dictionaries(st.sampled_from(["type", "role", "text"]), leaves)


@busy
@given(st.dictionaries(st.sampled_from(["model", "messages", "stream", "system", "stop_sequences", "x"]), json_values),
       st.sampled_from([PATH, COUNT]))
def test_no_body_is_a_fault_of_ours(body: dict[str, Any], path: str) -> None:
    world = World()
    for name in ("tiny", "echo"):        # both can be drawn
        world.edge.scripts[name] = played(started("chat/completions"), chat_chunk("stop", content="x"))
    for asked in (body, ASK | body, {"messages": []} | body | {"model": "tiny"}):
        answer = world.call("POST", path, asked)
        assert answer.status in (200, 400, 404), answer.json
        if answer.status != 200:
            assert answer.json["type"] == "error"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model":"tiny"}', b'{"model":1,"messages":[]}', b"NaN",
                                  b'{"model":"tiny","messages":"x"}', b'{"model":"tiny","messages":[],"stream":"y"}',
                                  b'{"model":"tiny","messages":[],"messages":[]}'])
@pytest.mark.parametrize("path", [PATH, COUNT])
def test_a_bad_body_is_an_invalid_request(world: World, path: str, body: bytes) -> None:
    assert error_of(world.call("POST", path, body)) == (400, "invalid_request_error")


@pytest.mark.parametrize("query", ["beta=%0atrue;x", "x" * 201, "a=%F0%9F'"])
def test_a_query_that_is_none_is_not_passed_on(world: World, query: str) -> None:
    assert error_of(world.call("POST", f"{PATH}?{query}", ASK)) == (400, "invalid_request_error")


def test_refusals_have_their_types(world: World) -> None:
    assert error_of(world.call("POST", PATH, ASK, "wrong")) == (401, "authentication_error")
    assert error_of(world.call("POST", PATH, ASK | {"model": "no"})) == (404, "not_found_error")
    assert error_of(world.call("POST", PATH, ASK | {"model": "echo"}, world.models)) == (403, "permission_error")
    world.edge.refusal = QueueFull()
    answer = world.call("POST", PATH, ASK)
    assert error_of(answer) == (429, "rate_limit_error")
    assert answer.headers["Retry-After"].isdigit() and "x-should-retry" not in answer.headers
    world.edge.refusal = None
    world.edge.node("n1").draining = True
    answer = world.call("POST", PATH, ASK)
    assert error_of(answer) == (503, "overloaded_error") and answer.headers["Retry-After"].isdigit()


def test_a_body_that_is_too_large_is_told_in_this_dialect(make_world: type[World]) -> None:
    world = make_world(body_bytes=1_000)
    assert error_of(world.call("POST", PATH, ASK | {"system": "x" * 2_000})) == (413, "request_too_large")


def failing(**outcome: Any) -> Any:
    error = UpstreamError("The backend answered.", **outcome)
    return played(ending="failed", outcome=events.outcome_of(error))


def test_a_backends_own_refusal_stays_as_it_is(world: World) -> None:
    own = {"type": "error", "error": {"type": "invalid_request_error", "message": "too many"}, "request_id": "r"}
    world.edge.scripts["tiny"] = failing(status=400, body=json.dumps(own).encode())
    answer = world.call("POST", PATH, ASK)
    assert (answer.status, answer.json) == (400, own)


def test_a_chat_backends_refusal_is_told_in_this_dialect(world: World) -> None:
    world.edge.scripts["tiny"] = failing(status=500, body=b'{"error":{"code":500,"message":"boom","type":"server_error"}}')
    answer = world.call("POST", PATH, STREAM)
    assert error_of(answer) == (500, "api_error") and answer.json["error"]["message"] == "boom"


def test_a_nodes_own_key_that_is_refused_is_nothing_the_client_could_mend(world: World) -> None:
    world.edge.scripts["tiny"] = failing(status=401, body=b'{"error":{"message":"Invalid key."}}')
    assert error_of(world.call("POST", PATH, ASK)) == (502, "api_error")


def test_a_run_that_has_begun_is_not_asked_for_again(world: World) -> None:
    error = UpstreamError("It broke off.", retryable=True)
    world.edge.scripts["tiny"] = played(started("chat/completions"), ending="failed", outcome=events.outcome_of(error))
    assert world.call("POST", PATH, ASK).headers["x-should-retry"] == "false"


# --- counting

def test_a_backend_that_counts_is_asked(world: World) -> None:
    world.edge.scripts["tiny"] = played(started(), events.output("", raw=b'{"input_tokens":21}'))
    answer = world.call("POST", COUNT, {"model": "tiny", "messages": []})
    assert answer.json == {"input_tokens": 21}
    assert world.edge.last.request.api == "messages/count_tokens"


@pytest.mark.parametrize("status", [404, 405, 501])
def test_where_nobody_can_count_there_is_no_such_thing(world: World, status: int) -> None:
    world.edge.scripts["tiny"] = failing(status=status, body=b'{"error":{"message":"File Not Found"}}')
    answer = world.call("POST", COUNT, ASK)
    assert error_of(answer) == (404, "not_found_error") and "cannot count" in answer.json["error"]["message"]
    assert answer.headers["x-iop-run-id"] and answer.json["request_id"] == answer.headers["request-id"]
    runs = len(world.edge.runs_by_id)
    assert error_of(world.call("POST", COUNT, ASK | {"model": "echo"})) == (404, "not_found_error")
    assert len(world.edge.runs_by_id) == runs, "no program is started to count"
