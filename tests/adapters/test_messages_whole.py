"""A whole answer of the Messages API out of its stream: what the backend would have answered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from iop.adapters.wire.messages_whole import JoiningMessageReader
from iop.errors import UpstreamError
from tests.adapters.replies import captured, sse

START: dict[str, Any] = {"type": "message_start", "message": {
    "id": "m", "type": "message", "role": "assistant", "content": [], "model": "x", "stop_reason": None,
    "stop_sequence": None, "usage": {"input_tokens": 5, "output_tokens": 1}}}
END: list[dict[str, Any]] = [
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}, "context_management": {}},
    {"type": "message_stop"}]


def block(index: int, kind: str, *deltas: dict[str, Any], **head: Any) -> list[dict[str, Any]]:
    return [{"type": "content_block_start", "index": index, "content_block": {"type": kind} | head},
            *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": index}]


def joined(data: bytes) -> tuple[JoiningMessageReader, dict[str, Any]]:
    reader = JoiningMessageReader()
    events = [event for start in range(0, len(data), 100) for event in reader.feed(data[start:start + 100])] + reader.finish()
    assert reader.done
    [event] = events
    return reader, json.loads(event.raw)


def test_the_stream_of_llama_cpp_is_joined() -> None:
    reader, whole = joined(captured("llama-server-2026.10.11549/messages-stream.http"))
    assert whole["content"] == [{"type": "text", "text": "Hello from a real llama.cpp"}]
    assert (whole["type"], whole["role"], whole["stop_reason"], whole["stop_sequence"]) == (
        "message", "assistant", "max_tokens", None)
    assert whole["usage"] == {"cache_read_input_tokens": 0, "input_tokens": 21, "output_tokens": 5}
    assert reader.finish_reason == "length" and reader.usage is not None and reader.usage.completion_tokens == 5


def test_a_tool_call_is_joined_as_the_server_itself_answers() -> None:
    _, whole = joined(captured("llama-server-2026.10.11549/messages-stream-tool.http"))
    own = json.loads(captured("llama-server-2026.10.11549/messages-tool.http"))
    assert whole.keys() == own.keys() and whole["stop_reason"] == own["stop_reason"]
    assert whole["content"][0] | {"id": ""} == own["content"][0] | {"id": ""}


def test_all_kinds_of_deltas_find_their_block() -> None:
    _, whole = joined(sse(
        START, *block(0, "thinking", {"type": "thinking_delta", "thinking": "b"}, {"type": "thinking_delta", "thinking": "c"},
                      {"type": "signature_delta", "signature": "s"}, thinking="a", signature=""),
        {"type": "ping"},
        *block(1, "text", {"type": "text_delta", "text": "t"}, {"type": "citations_delta", "citation": {"n": 1}},
               {"type": "citations_delta", "citation": {"n": 2}}, text=""),
        *block(2, "tool_use", id="c", name="n", input={}),
        *block(3, "tool_use", {"type": "input_json_delta", "partial_json": "{"}, id="d", name="n"),
        *block(4, "future", {"type": "future_delta", "x": 1}), *END))
    assert whole["content"] == [
        {"type": "thinking", "thinking": "abc", "signature": "s"},
        {"type": "text", "text": "t", "citations": [{"n": 1}, {"n": 2}]},
        {"type": "tool_use", "id": "c", "name": "n", "input": {}},
        {"type": "tool_use", "id": "d", "name": "n", "input": {"INVALID_JSON": "{"}}, {"type": "future", "x": 1}]
    assert whole["usage"] == {"input_tokens": 5, "output_tokens": 9} and whole["context_management"] == {}


def test_an_error_in_the_stream_leaves_nothing_of_the_answer() -> None:
    reader = JoiningMessageReader()
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    told = reader.feed(sse(START, *block(0, "text", {"type": "text_delta", "text": "half"}, text=""), error))
    assert told == [] and reader.fault is not None and reader.fault.status == 529 and not reader.done


def test_an_end_without_a_reason_is_a_cut() -> None:
    with pytest.raises(UpstreamError, match="stop_reason"):
        JoiningMessageReader().feed(sse(START, {"type": "message_stop"}))
    reader = JoiningMessageReader()
    assert reader.feed(sse(START, END[0])) == reader.finish() == [] and not reader.done


def test_what_is_too_long_is_refused() -> None:
    reader = JoiningMessageReader(100)
    with pytest.raises(UpstreamError, match="100 bytes"):
        reader.feed(sse(START, *block(0, "text", *[{"type": "text_delta", "text": "x" * 50}] * 20, text="")))


@pytest.mark.parametrize("odd", [[], "x", {"type": "message_start"}, {"type": "content_block_delta", "index": 7, "delta": {}},
                                 {"type": "content_block_start", "index": "0", "content_block": {}},
                                 {"type": "content_block_delta", "index": [0], "delta": {}},
                                 {"type": "message_delta", "usage": 3}])
def test_events_of_another_form_are_passed_over(odd: Any) -> None:
    data = b"data: " + json.dumps(odd).encode() + b"\n\n"
    _, whole = joined(sse(START) + data + sse(*block(0, "text", {"type": "text_delta", "text": "t"}, text=""), *END))
    assert whole["content"] == [{"type": "text", "text": "t"}]
