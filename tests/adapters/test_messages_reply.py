"""The readers of replies in Anthropic's Messages API: captures of a real server, and what servers send besides."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iop.adapters.wire.messages_reply import MessageReader, MessagesReader
from iop.adapters.wire.readers import readers_of
from iop.adapters.wire.requests import passed_on
from iop.errors import UpstreamError
from iop.proto.run_pb2 import CHANNEL_REASONING, CHANNEL_TEXT, RuntimeEvent
from tests.adapters.replies import captured, sse

busy = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])     # the machine, not the code, may be slow


def read(data: bytes) -> tuple[MessagesReader, list[RuntimeEvent]]:
    reader = MessagesReader()
    return reader, reader.feed(data) + reader.finish()


def text(events: list[RuntimeEvent], channel: int = CHANNEL_TEXT) -> str:
    return "".join(event.output for event in events if event.channel == channel)


def test_a_stream_of_llama_cpp_is_read_and_passes_byte_for_byte() -> None:
    reader, events = read(captured("llama-server-2026.10.11549/messages-stream.http"))
    assert text(events) == "Hello from a real llama.cpp"
    assert (reader.done, reader.finish_reason) == (True, "length")
    assert reader.usage is not None
    assert (reader.usage.prompt_tokens, reader.usage.completion_tokens, reader.usage.total_tokens) == (21, 5, 26)
    again = b"".join(b"event: %b\ndata: %b\n\n" % (json.loads(event.raw)["type"].encode(), event.raw) for event in events)
    assert again == captured("llama-server-2026.10.11549/messages-stream.http")


def test_a_stream_with_a_tool_call_ends_as_one() -> None:
    reader, events = read(captured("llama-server-2026.10.11549/messages-stream-tool.http"))
    assert (reader.done, reader.finish_reason, text(events)) == (True, "tool_calls", "")
    pieces = [json.loads(event.raw)["delta"]["partial_json"] for event in events if b"input_json_delta" in event.raw]
    assert json.loads("".join(pieces)) == {"city": "Rome", "days": 3}


def test_a_whole_answer_is_one_event() -> None:
    reader = MessageReader()
    data = captured("llama-server-2026.10.11549/messages-tool.http")
    assert reader.feed(data[:50]) == reader.feed(data[50:]) == [] and not reader.done
    [event] = reader.finish()
    assert (event.raw, event.output, reader.done, reader.finish_reason) == (data, "", True, "tool_calls")
    assert reader.usage is not None
    assert (reader.usage.prompt_tokens, reader.usage.cached_tokens, reader.usage.completion_tokens) == (250, 249, 8)


def test_the_answer_to_count_tokens_is_a_whole_one() -> None:
    reader = readers_of(passed_on("messages/count_tokens", b"{}", "m"))[0]
    reader.feed(b'{"input_tokens":21}')
    assert reader.finish()[0].raw == b'{"input_tokens":21}' and reader.done and reader.usage is None


@busy
@given(st.lists(st.integers(0, 2000), max_size=12))
def test_the_same_is_read_however_the_stream_is_cut(places: list[int]) -> None:
    data = captured("llama-server-2026.10.11549/messages-stream.http")
    reader = MessagesReader()
    marks = [0, *sorted(place % len(data) for place in places), len(data)]
    events = [event for start, end in zip(marks, marks[1:], strict=False) for event in reader.feed(data[start:end])]
    events += reader.finish()
    assert [event.raw for event in events] == [event.raw for event in read(data)[1]] and reader.done


def test_thoughts_have_their_channel_and_a_count_at_the_end_replaces_the_first() -> None:
    reader, events = read(sse(
        {"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 1,
                                                        "cache_creation_input_tokens": 10}}},
        {"type": "ping"},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "a", "signature": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "b"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "xyz"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "c"}},
        {"type": "message_delta", "delta": {"stop_reason": "stop_sequence", "stop_sequence": "x"},
         "usage": {"input_tokens": 4, "cache_read_input_tokens": 100, "output_tokens": 7}},
        {"type": "message_stop"}, {"type": "late"}))
    assert (text(events, CHANNEL_REASONING), text(events), reader.finish_reason) == ("ab", "c", "stop")
    assert reader.usage is not None
    assert (reader.usage.prompt_tokens, reader.usage.cached_tokens, reader.usage.completion_tokens) == (114, 100, 7)
    assert len(events) == 8, "what follows the end is not looked at"


def test_a_stream_without_its_last_event_is_not_whole() -> None:
    reader, _ = read(sse({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}))
    assert not reader.done


@pytest.mark.parametrize("error", [
    {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    {"error": {"message": "Overloaded"}}, {"type": "error", "error": "Overloaded"}])
def test_an_error_in_the_stream_ends_it_with_the_backends_words(error: dict[str, object]) -> None:
    with pytest.raises(UpstreamError, match="Overloaded") as raised:
        MessagesReader().feed(b"data: " + json.dumps(error).encode() + b"\n\n")
    assert json.loads(raised.value.body) == error
    assert raised.value.status == (529 if "overloaded_error" in str(error) else 0)


def test_a_whole_error_with_the_status_200_is_one() -> None:
    reader = MessageReader()
    reader.feed(b'{"type":"error","error":{"type":"api_error","message":"broken"}}')
    with pytest.raises(UpstreamError, match="broken"):
        reader.finish()


@pytest.mark.parametrize("payload", [
    b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":7}}', b'{"type":1}', b'[]', b'"x"',
    b'{"type":"content_block_delta","delta":{"type":"text_delta","text":"\\ud83d"}}',
    b'{"type":"message_delta","delta":[],"usage":{"output_tokens":"many"}}', b'{"type":"from_the_future","x":{}}'])
def test_what_has_another_form_than_expected_is_passed_on(payload: bytes) -> None:
    reader = MessagesReader()
    [event] = reader.feed(b"data: " + payload + b"\n\n")
    assert (event.raw, event.output) == (payload, "")


@pytest.mark.parametrize("payload", [b"{nonsense", b'{"type":"x","y":' + b"[" * 100_000 + b"]" * 100_000 + b"}"])
def test_what_is_no_json_or_nested_too_deep_is_refused(payload: bytes) -> None:
    with pytest.raises(UpstreamError, match="not JSON"):
        MessagesReader().feed(b"data: " + payload + b"\n\n")
    whole = MessageReader()
    whole.feed(payload)
    with pytest.raises(UpstreamError, match="not JSON"):
        whole.finish()


def test_a_whole_answer_is_bounded() -> None:
    with pytest.raises(UpstreamError, match="100 bytes"):
        MessageReader(100).feed(b"x" * 101)
