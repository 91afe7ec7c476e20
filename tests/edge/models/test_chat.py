"""Chats that are told from what another API's chunks say, and the settings of their streams."""

import json

import pytest

from iop import events
from iop.edge.models.chat import ChatBody, ChatStream
from iop.errors import UpstreamError
from iop.proto import run_pb2
from iop.proto.run_pb2 import RuntimeEvent
from tests.edge.models.chats import ASK, CHAT, DONE, STREAM, chunks
from tests.edge.models.conftest import chat_chunk, completed, entry, played, started, tool_chunk

CALLS = (tool_chunk(index=0, id="a", type="function", function={"name": "f", "arguments": ""}),
         tool_chunk(index=0, function={"arguments": "{}"}))


# --- backends that say "stop" behind tool calls

def test_only_the_word_stop_is_mended_behind_tool_calls(world):
    last = chat_chunk("stop")
    text = chat_chunk(content='"finish_reason": "stop"')
    world.edge.scripts["tiny"] = played(started(), *CALLS, text, last)
    told = world.call("POST", CHAT, STREAM).body
    mended = last.raw.replace(b'"stop"', b'"tool_calls"')
    assert told == b"".join(b"data: %b\n\n" % one.raw for one in (*CALLS, text)) + b"data: " + mended + b"\n\n" + DONE


@pytest.mark.parametrize("empty", [{}, {"tool_calls": []}, {"tool_calls": None}])
def test_a_stop_without_calls_is_a_stop(world, empty):
    last = chat_chunk("stop", content="a", **empty)
    world.edge.scripts["tiny"] = played(started(), last)
    assert world.call("POST", CHAT, STREAM).body == b"data: " + last.raw + b"\n\n" + DONE


def test_a_whole_answer_is_mended_too(world):
    raw = b'{"choices": [{"message": {"tool_calls": [ {"id":"a"}]}, "finish_reason" : "stop"}],  "new": 1.50}'
    world.edge.scripts["tiny"] = played(started(), events.output("", raw=raw))
    assert world.call("POST", CHAT, ASK).body == raw.replace(b'"stop"', b'"tool_calls"')


# --- told from elsewhere

def test_tool_calls_are_told_in_fragments_with_ids_and_strings():
    stream, body = ChatStream("r", 1, "m", False), ChatBody("r", 1, "m")
    told = b""
    for event in (
            started("messages"), chat_chunk(content="look: "), tool_chunk(index=0, id="a", function={"name": "f"}),
            tool_chunk(index=0, function={"arguments": '{"x"'}), tool_chunk(index=0, function={"arguments": ":1}"}),
            tool_chunk(index=1, id="b", function={"name": "g"}), events.ending("completed", completed())):
        told += stream.write(entry(event))
        body.read(entry(event))
    told = chunks(told + stream.end())
    assert [one["choices"][0]["delta"] for one in told] == [
        {"role": "assistant", "content": ""}, {"content": "look: "},
        {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"x"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]},
        {"tool_calls": [{"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": ""}}]}, {}]
    assert told[-1]["choices"][0]["finish_reason"] == "tool_calls"
    message = json.loads(body.body())["choices"][0]["message"]
    assert message["content"] == "look: "
    assert [call["function"]["arguments"] for call in message["tool_calls"]] == ['{"x":1}', ""]


def test_what_happens_before_the_first_output_does_not_begin_the_stream(world):
    status = RuntimeEvent(at_us=1, status=run_pb2.Status(word="loading", detail="tiny", progress=0.5))
    wire = world.asking(CHAT, {**STREAM, "model": "echo"})
    run = world.edge.last
    run.start()
    run.emit(status)
    assert not wire.received
    run.emit(events.output("a"))
    told = [json.loads(line[6:]) for line in wire.streamed().split(b"\n") if line]
    assert [one["choices"][0]["delta"] for one in told] == [{"role": "assistant", "content": ""}, {}, {"content": "a"}]
    assert told[1]["x_iop"]["word"] == "loading"
    run.end("completed")


def test_a_failure_behind_a_status_still_has_its_own_status(world):
    status = RuntimeEvent(at_us=1, status=run_pb2.Status(word="loading", detail="tiny"))
    error = UpstreamError("no memory", status=500)
    world.edge.scripts["tiny"] = played(status, outcome=events.outcome_of(error), ending="failed")
    assert world.call("POST", CHAT, STREAM).status == 500


def test_cached_tokens_are_told_where_somebody_counted_them(world):
    outcome = completed(prompt_tokens=3, completion_tokens=1, total_tokens=4, cached_tokens=2)
    world.edge.scripts["echo"] = played(events.started("cli", "echo"), events.output("a"), outcome=outcome)
    usage = world.call("POST", CHAT, {**ASK, "model": "echo"}).json["usage"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 2}


def test_what_a_program_did_stands_beside_its_whole_answer(world):
    tool = RuntimeEvent(at_us=1, tool_call=run_pb2.ToolCall(call_id="1", name="bash", arguments=b"{}"))
    world.edge.scripts["echo"] = played(events.started("cli", "echo"), tool, events.output("a"))
    answer = world.call("POST", CHAT, {**ASK, "model": "echo"}).json
    assert [item["name"] for item in answer["x_iop"]] == ["bash"]
    assert "tool_calls" not in answer["choices"][0]["message"]


# --- heartbeats

def test_heartbeats_can_be_empty_deltas(make_world):
    world = make_world(heartbeat="chunks")
    wire = world.asking(CHAT, STREAM)
    world.clock.advance(10.1)
    told = [json.loads(line[6:]) for line in wire.streamed().split(b"\n") if line]
    assert [one["choices"] for one in told] == [[{"index": 0, "delta": {}, "logprobs": None, "finish_reason": None}]]
    assert told[0]["object"] == "chat.completion.chunk"


# --- cancelling

@pytest.mark.parametrize("stream", [True, False])
def test_a_run_is_cancelled_by_the_id_in_its_answers_head(world, stream):
    wire = world.asking(CHAT, {**ASK, "stream": stream})
    run = world.edge.last
    run.emit(started(), chat_chunk(content="a"))
    if stream:
        head = wire.received.partition(b"\r\n\r\n")[0].decode()
        assert f"x-iop-run-id: {run.record.run_id}" in head
        wire.streamed()
    assert world.call("POST", f"/api/v1/runs/{run.record.run_id}/cancel", {}).status == 202
    if stream:
        told = wire.streamed()
        assert DONE not in told
        assert json.loads(told.split(b"\n")[0][6:])["error"]["code"] == "cancelled"
    else:
        answer = wire.answer()
        assert (answer.status, answer.code, answer.headers["x-should-retry"]) == (409, "cancelled", "false")
