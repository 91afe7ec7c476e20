"""Anthropic's Messages API told from runs, over fake entries."""

from __future__ import annotations

import json
from typing import Any

import pytest

from iop import events
from iop.edge.models.count_tokens import CountBody
from iop.edge.models.messages import PING, MessageBody, MessagesStream
from iop.errors import NotFound, UpstreamError
from iop.proto import run_pb2
from iop.proto.run_pb2 import CHANNEL_REASONING, CHANNEL_STDERR, CHANNEL_STDOUT, Gap, RuntimeEvent, ToolCall
from tests.edge.models.conftest import chat_chunk, completed, entry, started, tool_chunk

CHAT = "chat/completions"


def ended(outcome: run_pb2.Outcome | None = None, kind: str = "completed") -> RuntimeEvent:
    return events.ending(kind, outcome or completed())


def streamed(*told: RuntimeEvent, stops: tuple[str, ...] = (), outcome: run_pb2.Outcome | None = None,
             kind: str = "completed") -> bytes:
    """What a client gets of a run whose events come one batch each."""
    teller = MessagesStream("r1", "claude-local", stops)
    found = b"".join([teller.write(entry(event, first=number)) for number, event in enumerate(told, 1)])
    return found + teller.write(entry(ended(outcome, kind), first=99)) + teller.end()


def parsed(stream: bytes) -> list[dict[str, Any]]:
    """Its events; each must have its name, which is its type."""
    found = []
    for frame in stream.decode().split("\n\n")[:-1]:
        name, data = frame.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def test_a_chat_is_told_as_a_message() -> None:
    found = parsed(streamed(
        started(CHAT), chat_chunk(role="assistant", content=""), chat_chunk(reasoning_content="Hm."),
        chat_chunk(content="Hel"), chat_chunk(content="lo"), chat_chunk("stop"),
        outcome=completed("stop", prompt_tokens=11, completion_tokens=6, total_tokens=17, cached_tokens=3)))
    assert found[0] == {"type": "message_start", "message": {
        "id": "msg_r1", "type": "message", "role": "assistant", "model": "claude-local", "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": {"input_tokens": 0, "output_tokens": 0}}}
    assert found[1:] == [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hel"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "lo"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
         "usage": {"input_tokens": 8, "output_tokens": 6, "cache_read_input_tokens": 3}},
        {"type": "message_stop"}]


def test_the_prompts_tokens_stand_in_the_first_event_where_they_are_known() -> None:
    usage = RuntimeEvent(at_us=1, usage=run_pb2.Usage(prompt_tokens=9, total_tokens=9), raw=b'{"choices":[],"usage":{}}')
    found = parsed(streamed(started(CHAT), usage, chat_chunk(content="x")))
    assert found[0]["message"]["usage"] == {"input_tokens": 9, "output_tokens": 0}


def test_a_tool_call_ends_as_one_whatever_the_backend_says() -> None:
    found = parsed(streamed(
        started(CHAT), tool_chunk(index=0, id="call_1", type="function", function={"name": "Bash", "arguments": ""}),
        tool_chunk(index=0, function={"arguments": '{"command":'}), tool_chunk(index=0, function={"arguments": '"ls"}'}),
        chat_chunk("stop")))
    assert found[1]["content_block"] == {"type": "tool_use", "id": "call_1", "name": "Bash", "input": {}}
    assert "".join(event["delta"]["partial_json"] for event in found[2:4]) == '{"command":"ls"}'
    assert found[-2]["delta"]["stop_reason"] == "tool_use"


@pytest.mark.parametrize(("finish", "reason"), [
    ("stop", "end_turn"), ("length", "max_tokens"), ("tool_calls", "tool_use"), ("content_filter", "refusal"),
    ("something_new", "end_turn")])
def test_why_a_model_stopped_is_told_in_anthropics_words(finish: str, reason: str) -> None:
    found = parsed(streamed(started(CHAT), chat_chunk(content="x"), chat_chunk(finish)))
    assert found[-2]["delta"] == {"stop_reason": reason, "stop_sequence": None}


@pytest.mark.parametrize("field", ["stop_reason", "matched_stop"])
def test_a_stop_sequence_is_named_where_the_backend_names_it(field: str) -> None:
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", field: "END"}]}
    told = (started(CHAT), chat_chunk(content="x"), events.output("", raw=json.dumps(last).encode()))
    assert parsed(streamed(*told, stops=("STOP", "END")))[-2]["delta"] == {
        "stop_reason": "stop_sequence", "stop_sequence": "END"}
    assert parsed(streamed(*told, stops=("STOP",)))[-2]["delta"]["stop_reason"] == "end_turn"


def test_a_program_is_a_model_and_what_it_does_stands_in_pings() -> None:
    found = parsed(streamed(
        events.started("cli", "echo"), events.output("think", CHANNEL_REASONING), events.output("noise", CHANNEL_STDERR),
        RuntimeEvent(at_us=1, tool_call=ToolCall(call_id="t", name="shell", arguments=b"{}")),
        events.output("out", CHANNEL_STDOUT)))
    assert [event["type"] for event in found] == [
        "message_start", "content_block_start", "content_block_delta", "ping", "content_block_stop", "content_block_start",
        "content_block_delta", "content_block_stop", "message_delta", "message_stop"]
    assert found[3]["x_iop"]["type"] == "tool_started" and "noise" not in json.dumps(found)
    assert found[-2] == {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                         "usage": {"input_tokens": 0, "output_tokens": 0}}


def test_a_status_before_the_first_output_waits_for_it() -> None:
    teller = MessagesStream("r1", "m")
    assert teller.write(entry(RuntimeEvent(at_us=1, status=run_pb2.Status(word="loading")))) == b""
    found = parsed(teller.write(entry(events.output("x"), first=2)))
    assert [event["type"] for event in found][:3] == ["message_start", "ping", "content_block_start"]


def test_an_answer_of_nothing_is_whole_too() -> None:
    assert [event["type"] for event in parsed(streamed(started(CHAT)))] == ["message_start", "message_delta", "message_stop"]


# --- a backend that has the API itself

NATIVE = [b'{"type":"message_start","message":{"id":"up","usage":{"input_tokens":21}}}', b'{"index":0,  "type":"ping"}',
          b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}', b'{"type":"message_stop"}']


def native_events() -> list[RuntimeEvent]:
    return [events.output("", raw=raw) for raw in NATIVE[:-1]] + [
        RuntimeEvent(at_us=1, usage=run_pb2.Usage(prompt_tokens=1), raw=b'{"type":"message_delta","delta":{},"usage":{}}'),
        events.output("", raw=NATIVE[-1])]


def test_events_of_a_native_backend_pass_byte_for_byte_with_their_names() -> None:
    found = streamed(started(content_type="text/event-stream"), *native_events())
    names = [b"message_start", b"ping", b"content_block_delta", b"message_delta", b"message_stop"]
    raws = [*NATIVE[:3], b'{"type":"message_delta","delta":{},"usage":{}}', NATIVE[3]]
    assert found == b"".join(b"event: %b\ndata: %b\n\n" % pair for pair in zip(names, raws, strict=True))


def test_a_batch_is_made_once_for_all_its_readers() -> None:
    batch = entry(started(content_type="text/event-stream"), *native_events())
    tellers = [MessagesStream("r1", "m") for _ in range(2)]
    first, second = [teller.write(batch) for teller in tellers]
    assert first is second


def test_a_native_body_passes_as_it_came() -> None:
    body = MessageBody("r1", "m")
    raw = b'{"type":"message", "content":[ ],"future_field":1.50}'
    body.read(entry(started(), events.output("", raw=raw)))
    body.read(entry(ended(), first=3))
    assert body.ending.completed and body.body() == raw and body.size == len(raw)


# --- failures

def test_a_failure_in_the_middle_is_an_error_event_and_no_end() -> None:
    error = UpstreamError("The backend's reply broke off before its end.")
    found = parsed(streamed(started(CHAT), chat_chunk(content="x"), outcome=events.outcome_of(error), kind="failed"))
    assert [event["type"] for event in found] == ["message_start", "content_block_start", "content_block_delta", "error"]
    assert found[-1]["error"] == {"type": "api_error", "message": error.message}


def test_a_backends_own_error_stays_as_it_is() -> None:
    own = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded", "x": None}, "request_id": "r"}
    error = UpstreamError("It ended.", status=529, body=json.dumps(own).encode())
    found = parsed(streamed(started(content_type="text/event-stream"), *native_events()[:2], outcome=events.outcome_of(error),
                            kind="failed"))
    assert found[-1] == own and found[-2]["type"] == "ping"


def test_an_answer_with_a_hole_in_it_is_none() -> None:
    gap = RuntimeEvent(at_us=1, gap=Gap(first_seq=2, reason="lost"))
    for api in (CHAT, None):
        found = streamed(started(api), chat_chunk(content="x") if api else native_events()[0], gap)
        assert parsed(found)[-1]["type"] == "error"
        assert b"message_stop" not in found


def test_a_cancelled_run_is_an_error() -> None:
    found = parsed(streamed(started(CHAT), chat_chunk(content="x"), kind="cancelled",
                            outcome=run_pb2.Outcome(code="cancelled", message="Enough.")))
    assert found[-1]["error"]["message"] == "Enough."


# --- in one piece

def test_a_whole_answer_holds_the_same_objects() -> None:
    whole = {"id": "x", "object": "chat.completion", "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
        "role": "assistant", "content": "Looking.", "reasoning_content": "Hm.", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"p":"/"}'}},
            {"id": "c2", "type": "function", "function": {"name": "pwd", "arguments": ""}}]}}]}
    body = MessageBody("r1", "claude-local")
    body.read(entry(started(CHAT), events.output("Looking.", raw=json.dumps(whole).encode())))
    body.read(entry(ended(completed("tool_calls", prompt_tokens=5, completion_tokens=2, total_tokens=7)), first=3))
    assert json.loads(body.body()) == {
        "id": "msg_r1", "type": "message", "role": "assistant", "model": "claude-local", "stop_reason": "tool_use",
        "stop_sequence": None, "usage": {"input_tokens": 5, "output_tokens": 2}, "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": ""}, {"type": "text", "text": "Looking."},
            {"type": "tool_use", "id": "c1", "name": "ls", "input": {"p": "/"}},
            {"type": "tool_use", "id": "c2", "name": "pwd", "input": {}}]}


def test_a_count_passes_as_it_came_and_none_is_made_up() -> None:
    count = CountBody()
    count.read(entry(started(), events.output("", raw=b'{"input_tokens":21}')))
    assert count.body() == b'{"input_tokens":21}'
    count = CountBody()
    count.read(entry(events.started("mock", "m"), events.output("21")))
    with pytest.raises(NotFound):
        count.body()


def test_the_heartbeat_is_a_ping() -> None:
    assert PING == b'event: ping\ndata: {"type":"ping"}\n\n'
