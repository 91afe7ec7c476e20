"""Replies in the Responses API: read from a copy, passed on byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest

from iop.adapters.wire.responses_reply import JoiningResponseReader, ResponseReader, ResponsesReader
from iop.errors import UpstreamError
from iop.proto.run_pb2 import CHANNEL_REASONING, CHANNEL_TEXT
from tests.adapters.replies import captured


def fed(*events: dict[str, Any] | bytes) -> tuple[ResponsesReader, list[Any]]:
    reader = ResponsesReader()
    data = b"".join(b"data: " + (one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n\n" for one in events)
    return reader, reader.feed(data)


def test_a_captured_whole_reply_is_read() -> None:
    reader, body = ResponseReader(), captured("vllm-0.32.0-cpu/responses.http")
    reader.feed(body)
    [event] = reader.finish()
    assert (event.raw, event.output, reader.finish_reason, reader.done) == (body, "", "length", True)
    assert reader.usage is not None and (reader.usage.prompt_tokens, reader.usage.total_tokens) == (4, 8)


def test_a_whole_replys_text_is_that_of_its_messages() -> None:
    body = {"status": "completed", "error": None, "output": [
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "content": [{"type": "output_text", "text": "Hel"}, {"type": "output_text", "text": "lo"}]},
        {"type": "function_call", "name": "f"}]}
    reader = ResponseReader()
    reader.feed(json.dumps(body).encode())
    [event] = reader.finish()
    assert (event.output, reader.finish_reason) == ("Hello", "tool_calls")


def test_a_captured_stream_is_read_to_its_own_end() -> None:
    reader = ResponsesReader()
    events = reader.feed(captured("llama-server-2026.10.11549/responses-stream.http"))
    assert reader.done and reader.finish_reason == "stop" and [bool(event.raw) for event in events] == [True]
    assert reader.usage is not None and reader.usage.total_tokens == 23


def test_thoughts_have_their_channel() -> None:
    _, events = fed({"type": "response.reasoning_text.delta", "delta": "hm"},
                    {"type": "response.output_text.delta", "delta": "x"},
                    {"type": "response.function_call_arguments.delta", "delta": "{"})
    assert [(event.output, event.channel) for event in events] == [("hm", CHANNEL_REASONING), ("x", CHANNEL_TEXT),
                                                                   ("", CHANNEL_TEXT)]


@pytest.mark.parametrize("error", [
    {"type": "response.failed", "response": {"status": "failed", "error": {"code": "server_error", "message": "dead"}}},
    {"type": "error", "message": "dead", "code": "x"}, {"error": {"message": "dead", "code": 500}}])
def test_an_error_ends_the_stream_behind_what_came_before(error: dict[str, Any]) -> None:
    with pytest.raises(UpstreamError, match="dead"):
        fed(error)
    reader, events = fed({"type": "response.output_text.delta", "delta": "x"}, error)
    assert [event.output for event in events] == ["x"] and "dead" in str(reader.fault)


def test_what_only_says_that_it_lives_is_not_heard() -> None:
    reader, events = fed({"type": "response.in_progress"}, {"type": "keepalive"}, {"type": "ping"}, {})
    assert len(events) == 4 and reader.heard == 0
    reader, _ = fed({"type": "response.function_call_arguments.delta", "delta": "{"})
    assert reader.heard == 1


@pytest.mark.parametrize("odd", [
    {"type": "response.completed", "response": {"output": 7}}, {"type": "response.completed", "response": {"usage": "x"}}])
def test_odd_events_are_passed_on(odd: dict[str, Any]) -> None:
    reader, [event] = fed(odd)
    assert reader.done and json.loads(event.raw) == odd


def test_chats_own_end_marker_proves_nothing() -> None:
    for kind in (ResponsesReader, JoiningResponseReader):
        reader = kind()
        assert reader.feed(b"data: [DONE]\n\n") == [] and not reader.done


def test_half_an_emoji_in_the_last_event_is_joined() -> None:
    reader = JoiningResponseReader()
    [event] = reader.feed(b'data: {"type":"response.output_item.done","item":{"type":"message","content":[]}}\n\n'
                          b'data: {"type":"response.completed","response":{"status":"completed","metadata":"\\ud83d"}}\n\n')
    assert reader.done and json.loads(event.raw) == {"status": "completed", "metadata": "\ud83d",
                                                     "output": [{"type": "message", "content": []}]}


def test_half_an_emoji_is_passed_on_and_what_is_no_json_is_refused() -> None:
    half = b'{"type":"response.output_text.delta","delta":"\\ud83d"}'
    _, [event] = fed(half)
    assert event.raw == half
    with pytest.raises(UpstreamError, match="not JSON"):
        fed(b"{nope")
