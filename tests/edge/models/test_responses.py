"""Runs told as the Responses API: the events in their order, and the object at their end."""

import json

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response

from iop import events
from iop.edge.models.responses import ResponseBody, ResponseStream
from iop.errors import InvalidRequest, NodeLost, QueueFull, UpstreamError
from iop.proto import run_pb2
from iop.proto.run_pb2 import CHANNEL_REASONING, CHANNEL_STDERR, Gap, RuntimeEvent
from tests.edge.models.responded import (
    AGENTS,
    OWN,
    PATCH,
    RECORD,
    RUN,
    RUN_OF_ALL,
    STREAM_EVENT,
    call_begin,
    call_piece,
    checked,
    chunk,
    completed,
    entries,
    failed,
    kinds,
    native,
    parsed,
    started,
    stream,
    usage,
    whole,
)

BEGIN = ["created", "in_progress"]
MESSAGE = ["output_item.added", "content_part.added", "output_text.delta", "output_text.delta", "output_text.done",
           "content_part.done", "output_item.done"]


# --- the order of events

def test_a_message_is_told_in_the_order_that_clients_need():
    told = checked(stream(started(), chunk(role="assistant", content=""), [chunk(content="Hel"), chunk(content="lo")],
                          [chunk("stop"), usage()], completed()))
    assert kinds(told) == [*BEGIN, *MESSAGE, "completed"]
    assert [event["delta"] for event in told if "delta" in event] == ["Hel", "lo"]
    assert told[0]["response"]["status"] == "in_progress" and told[0]["response"]["id"] == f"resp_{RUN}"
    assert told[2]["item"] == {"id": f"msg_{RUN}_0", "type": "message", "status": "in_progress", "role": "assistant",
                               "content": []}
    done = told[-1]["response"]
    assert done["output"] == [told[-2]["item"]] and done["output"][0]["content"][0]["text"] == "Hello"
    assert done["usage"] == {"input_tokens": 11, "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
                             "output_tokens": 6, "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 17}


@pytest.mark.parametrize(("asked", "first", "field"), [
    ({}, ["output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done",
          "output_item.done"], "content"),
    ({"reasoning": {"summary": "auto"}}, [
        "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta", "reasoning_summary_text.done",
        "reasoning_summary_part.done", "output_item.done"], "summary")])
def test_thoughts_come_before_the_message_as_the_client_wants_them(asked, first, field):
    batches = (started(), chunk(reasoning_content="Hm."), [chunk(content="a"), chunk(content="b")], completed())
    told = checked(stream(*batches, **asked))
    assert kinds(told) == [*BEGIN, *first, *MESSAGE, "completed"]
    assert {event["output_index"] for event in told[2:8]} == {0} and told[8]["output_index"] == 1
    index = "summary_index" if field == "summary" else "content_index"
    assert told[4][index] == 0 and told[4]["delta"] == "Hm."
    assert told[-1]["response"]["output"][0][field] == [{"type": told[5]["type"].split(".")[1].replace(
        "reasoning_summary_text", "summary_text"), "text": "Hm."}]


def test_parallel_calls_are_items_of_their_own():
    told = checked(stream(started(), chunk(content="See:"), [
        call_begin(0, "weather"), call_begin(1, "weather"), call_piece(0, '{"city":'), call_piece(1, '{"city":"Rome"}'),
        call_piece(0, '"Oslo"}')], chunk("tool_calls"), completed("tool_calls")))
    assert kinds(told) == [*BEGIN, *MESSAGE[:3], *MESSAGE[4:], "output_item.added", "output_item.added",
                           *["function_call_arguments.delta"] * 3,
                           "function_call_arguments.done", "output_item.done",
                           "function_call_arguments.done", "output_item.done", "completed"]
    calls = told[-1]["response"]["output"][1:]
    assert [(call["call_id"], call["arguments"], call["status"]) for call in calls] == [
        ("call_0", '{"city":"Oslo"}', "completed"), ("call_1", '{"city":"Rome"}', "completed")]
    assert told[-1]["response"]["status"] == "completed"


def test_names_of_a_namespace_are_mapped_back():
    told = checked(stream(started(), [call_begin(0, "agents__spawn"), call_piece(0, "{}")], completed(), tools=[AGENTS]))
    call = told[-1]["response"]["output"][0]
    assert (call["type"], call["namespace"], call["name"]) == ("function_call", "agents", "spawn")


@pytest.mark.parametrize(("arguments", "given"), [('{"input": "*** Begin\\n"}', "*** Begin\n"), ("*** raw", "*** raw"),
                                                  ('{"other": 1}', '{"other": 1}'), ("[1]", "[1]"), ("", "")])
def test_a_custom_tool_gets_its_input_as_it_is(arguments, given):
    pieces = [call_piece(0, piece) for piece in (arguments[:5], arguments[5:]) if piece]
    told = checked(stream(started(), [call_begin(0, "apply_patch"), *pieces], completed(), tools=[PATCH]))
    assert kinds(told)[2:] == ["output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done",
                               "output_item.done", "completed"]
    call = told[-1]["response"]["output"][0]
    assert (call["type"], call["name"], call["input"], told[3]["delta"]) == ("custom_tool_call", "apply_patch", given, given)


def test_a_search_for_tools_is_the_clients_to_run():
    search = {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}}
    call = checked(stream(started(), [call_begin(0, "tool_search"), call_piece(0, '{"query":"x"}')], completed(),
                          tools=[search]))[-1]["response"]["output"][0]
    assert (call["type"], call["execution"], call["arguments"], call["call_id"]) == (
        "tool_search_call", "client", {"query": "x"}, "call_0")


def test_text_may_follow_calls_and_come_back():
    told = checked(stream(started(), [chunk(content="a"), call_begin(0, "f"), chunk(content="b"), call_piece(0, "{}")],
                          completed()))
    assert [item["type"] for item in told[-1]["response"]["output"]] == ["message", "function_call", "message"]


def test_an_answer_without_output_is_whole_too():
    told = checked(stream(started(), completed()))
    assert kinds(told) == [*BEGIN, "completed"] and told[-1]["response"]["output"] == []


def test_what_a_program_does_is_told_beside_its_output():
    tool = RuntimeEvent(at_us=1, tool_call=run_pb2.ToolCall(call_id="1", name="bash", arguments=b"{}"))
    batches = (events.started("cli", "echo"), RuntimeEvent(at_us=1, status=run_pb2.Status(word="thinking")),
               [events.output("noise", CHANNEL_STDERR), tool, events.output("done")], completed())
    told = parsed(stream(*batches))
    assert kinds(told) == [*BEGIN, "x_iop", "x_iop", *MESSAGE[:3], *MESSAGE[4:], "completed"]
    assert [event["x_iop"]["type"] for event in told if "x_iop" in event] == ["status", "tool_started"]
    body = whole(*batches)
    assert len(body["output"]) == 1 and body["x_iop"][1]["name"] == "bash"


def test_a_status_alone_sends_nothing():
    teller = ResponseStream(RECORD, {}, "tiny")
    told = entries(events.started("cli", "echo"), RuntimeEvent(at_us=1, status=run_pb2.Status(word="loading")))
    assert [teller.write(entry) for entry in told] == [b"", b""]


def test_plain_events_are_told_as_text_and_thought():
    told = checked(stream(events.started("mock", "m"), events.output("Hm", CHANNEL_REASONING), events.output("é🎉"),
                          completed()))
    assert [item["type"] for item in told[-1]["response"]["output"]] == ["reasoning", "message"]
    assert told[-1]["response"]["output"][1]["content"][0]["text"] == "é🎉"


# --- endings

@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_an_answer_that_was_cut_is_incomplete(finish, reason):
    batches = (started(), chunk(content="a"), chunk(finish), completed(finish))
    told = checked(stream(*batches))
    done = told[-1]
    assert done["type"] == "response.incomplete"
    assert (done["response"]["status"], done["response"]["incomplete_details"]) == ("incomplete", {"reason": reason})
    assert done["response"]["output"][0]["status"] == "incomplete"
    assert whole(*batches)["status"] == "incomplete"


def upstream(status, **error):
    return UpstreamError("The backend refused.", status=status, body=json.dumps({"error": error}).encode())


@pytest.mark.parametrize(("error", "code", "own"), [
    (upstream(400, message="This model's maximum context length is 8", code=400), "context_length_exceeded",
     "context_length_exceeded"),
    (upstream(429, message="Slow down.", code="rate_limit_exceeded"), "rate_limit_exceeded", "rate_limit_exceeded"),
    (upstream(429, message="No money.", type="insufficient_quota"), "insufficient_quota", "insufficient_quota"),
    (upstream(400, message="Bad field.", type="invalid_request_error"), "invalid_prompt", "invalid_request_error"),
    (UpstreamError("x", body=b'{"type":"response.failed","response":{"error":{"code":"insufficient_quota","message":"m"}}}'),
     "insufficient_quota", "insufficient_quota"),
    (InvalidRequest("No."), "invalid_prompt", "invalid_request"), (QueueFull(), "rate_limit_exceeded", "rate_limit_exceeded"),
    (NodeLost(), "server_error", "node_lost"), (upstream(500, message="boom"), "server_error", "failed"),
    (UpstreamError("cut", body=b"\xff{"), "server_error", "upstream_error")])
def test_a_failure_in_the_stream_is_told_in_codexs_words(error, code, own):
    told = parsed(stream(started(), chunk(content="a"), failed(error)))
    assert kinds(told)[-4:] == [*MESSAGE[4:], "failed"]
    response = told[-1]["response"]
    assert (response["status"], response["error"]["code"], response["error"]["type"]) == ("failed", code, own)
    assert ("try again in" in response["error"]["message"]) == (code == "rate_limit_exceeded")
    assert response["output"][0]["status"] == "incomplete", "what came is told, and not as whole"


def test_a_cancelled_run_is_no_failure():
    told = parsed(stream(started(), chunk(content="a"), events.ending("cancelled", run_pb2.Outcome(code="cancelled"))))
    assert told[-1]["type"] == "response.failed"
    assert (told[-1]["response"]["status"], told[-1]["response"]["error"]) == ("cancelled", None)


def test_an_answer_with_a_hole_is_none():
    gap = RuntimeEvent(at_us=1, gap=Gap(first_seq=3, reason="lost"))
    told = parsed(stream(started(), chunk(content="a"), gap, chunk(content="b"), completed()))
    assert told[-1]["response"]["status"] == "failed" and "lost" in told[-1]["response"]["error"]["message"]


# --- resuming, and one piece

@pytest.mark.parametrize("after", range(-1, 30))
def test_a_reader_that_comes_back_gets_exactly_the_rest(after):
    everything = parsed(stream(*RUN_OF_ALL, tools=[PATCH]))
    rest = parsed(stream(*RUN_OF_ALL, after=after, tools=[PATCH]))
    assert rest == everything[after + 1:]


def test_the_whole_answer_is_that_of_the_stream():
    body = whole(*RUN_OF_ALL, tools=[PATCH], metadata={"a": "b"}, temperature=0.5)
    assert body == parsed(stream(*RUN_OF_ALL, tools=[PATCH], metadata={"a": "b"}, temperature=0.5))[-1]["response"]
    Response.model_validate(body)
    assert (body["metadata"], body["temperature"], body["tools"], body["model"]) == ({"a": "b"}, 0.5, [PATCH], "tiny")


def test_of_an_answer_only_what_is_kept_is_measured():
    """Else the events of a long stream would count, which have fifty times the bytes of its text."""
    passed = (started(None), *[native("output_text.delta", delta="a")] * 100, native("completed", response=OWN), completed())
    for batches, size in ((RUN_OF_ALL, len("Hm.Hello") + len('{"input":"x"}')), (passed, 150)):
        teller = ResponseBody(RECORD, {"tools": [PATCH]}, "tiny")
        for entry in entries(*batches):
            teller.read(entry)
        assert size <= teller.size <= size + 100


def test_a_joined_chat_is_an_answer():
    raw = {"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
        "role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}]}}]}
    body = whole(started(), events.output("", raw=json.dumps(raw).encode()), completed())
    assert [item["type"] for item in body["output"]] == ["reasoning", "function_call"]
    assert body["output"][1]["arguments"] == '{"a":1}'


def test_the_official_client_gathers_a_stream():
    """Its own accumulator, which is strict about the order of events."""
    from openai.lib.streaming.responses._responses import ResponseStreamState
    state = ResponseStreamState(text_format=openai.NOT_GIVEN, input_tools=openai.NOT_GIVEN)
    seen = []
    for event in checked(stream(*RUN_OF_ALL[:3], [call_begin(0, "f"), call_piece(0, "{}")], *RUN_OF_ALL[4:])):
        seen += [told.type for told in state.handle_event(STREAM_EVENT.validate_python(event))]
    assert seen[-1] == "response.completed" and "response.function_call_arguments.done" in seen


# --- heartbeats

def test_a_quiet_stream_begins_with_its_first_heartbeat():
    teller = ResponseStream(RECORD, {}, "tiny")
    first = teller.beat()
    assert kinds(parsed(first)) == BEGIN
    told = entries(started(), RuntimeEvent(at_us=1, status=run_pb2.Status(word="warning", detail="w")), chunk(content="a"),
                   completed())
    rest = b"".join(teller.write(entry) for entry in told)
    beat, = parsed(teller.beat())
    assert (beat["type"], beat["sequence_number"]) == ("keepalive", parsed(rest)[-1]["sequence_number"])
    everything = parsed(first + rest + teller.end())
    assert [event["sequence_number"] for event in everything] == list(range(len(everything)))
    assert kinds(everything)[:3] == [*BEGIN, "x_iop"] and kinds(everything)[-1] == "completed"


def test_a_backends_own_beginning_is_not_told_twice():
    teller = ResponseStream(RECORD, {}, "tiny")
    told = teller.beat() + b"".join(teller.write(entry) for entry in entries(
        started(None), native("created", response={"id": "b"}), native("in_progress", response={"id": "b"}),
        native("completed", response=OWN), completed())) + teller.end()
    assert [(event["type"], event["sequence_number"]) for event in parsed(told)] == [
        ("response.created", 0), ("response.in_progress", 1), ("response.completed", 2)]


def test_a_quiet_run_that_fails_ends_as_failed():
    teller = ResponseStream(RECORD, {}, "tiny")
    told = teller.beat() + b"".join(teller.write(entry) for entry in entries(failed(NodeLost()))) + teller.end()
    assert kinds(parsed(told)) == [*BEGIN, "failed"] and parsed(told)[-1]["sequence_number"] == 2


# --- whatever comes

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=5)
PIECES = st.one_of(
    TEXTS.map(lambda text: chunk(content=text)), TEXTS.map(lambda text: chunk(reasoning_content=text)),
    st.tuples(st.integers(0, 3), st.sampled_from(["f", "apply_patch", "agents__spawn", ""])).map(lambda it: call_begin(*it)),
    st.tuples(st.integers(0, 3), TEXTS).map(lambda piece: call_piece(*piece)),
    st.binary(max_size=9).map(lambda raw: events.output("x", raw=raw)),
    st.just(RuntimeEvent(at_us=1, status=run_pb2.Status(word="loading"))))
ENDINGS = st.sampled_from([completed(), completed("length"), failed(NodeLost()),
                           events.ending("cancelled", run_pb2.Outcome(code="cancelled"))])


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=12), ENDINGS, st.data())
def test_every_run_is_told_in_one_way_however_it_is_cut(pieces, ending, data):
    """Numbered without a hole, each item opened and closed once, the object the same as that of the stream's end."""
    tools = {"tools": [PATCH, AGENTS], "reasoning": {"summary": data.draw(st.sampled_from([None, "auto"]))}}
    body = stream(started(), *pieces, ending, **tools)
    assert stream([started(), *pieces, ending], **tools) == body
    told = parsed(body)
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    opened = [event["output_index"] for event in told if event["type"] == "response.output_item.added"]
    assert opened == list(range(len(opened)))
    done = {event["output_index"]: event["item"] for event in told if event["type"] == "response.output_item.done"}
    assert sorted(done) == opened and [done[place] for place in opened] == told[-1]["response"]["output"]
    after = data.draw(st.integers(-1, len(told)))
    assert parsed(stream(started(), *pieces, ending, after=after, **tools)) == told[after + 1:]
    body = whole(started(), *pieces, ending, **tools)
    body.pop("x_iop", None)
    assert body == told[-1]["response"]
