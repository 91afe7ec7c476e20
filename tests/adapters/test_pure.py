"""The pure readers: whatever way the bytes are cut, the same comes out; captures of real servers are read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iop.adapters.utf8 import Utf8Stream
from iop.adapters.wire.chat import StreamReader, WholeReader
from iop.adapters.wire.heads import HeadMeter
from iop.adapters.wire.lines import EventSplitter, LineSplitter
from iop.adapters.wire.messages_reply import MessagesReader
from iop.adapters.wire.responses_reply import ResponsesReader
from iop.adapters.wire.whole import JoiningReader
from iop.errors import UpstreamError
from iop.proto.run_pb2 import CHANNEL_REASONING
from tests.adapters.replies import captured, cut, places

utf8ish = st.one_of(st.binary(max_size=60), st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")))


@given(st.lists(utf8ish, max_size=8).map(b"".join), places)
def test_text_and_exact_are_the_bytes_however_they_are_cut(data: bytes, where: list[int]) -> None:
    stream = Utf8Stream()
    told = [stream.feed(piece) for piece in cut(data, where)] + [stream.finish()]
    assert b"".join(exact or text.encode() for text, exact in told) == data
    for text, exact in told:
        assert not exact or exact != text.encode(), "exact only where the text replaced something"


@given(st.text(max_size=60), places)
def test_valid_text_is_never_replaced(text: str, where: list[int]) -> None:
    stream = Utf8Stream()
    told = [stream.feed(piece) for piece in cut(text.encode(), where)] + [stream.finish()]
    assert "".join(piece for piece, _ in told) == text and not any(exact for _, exact in told)


@given(st.lists(st.sampled_from([b"data: a", b"data:b\r", b"\r\n", b"\n", b"\n\n", b": ping", b"event: x", b"data", b"id: 1",
                                 b"data: {\"x\":1}\n", b"\r"]), max_size=25).map(b"".join), places)
def test_events_are_the_same_however_the_stream_is_cut(data: bytes, where: list[int]) -> None:
    whole, pieces = EventSplitter(), EventSplitter()
    expected = whole.feed(data) + whole.finish()
    found = [event for piece in cut(data, where) for event in pieces.feed(piece)] + pieces.finish()
    assert found == expected


@given(st.binary(max_size=200), places)
def test_lines_are_the_same_however_the_stream_is_cut(data: bytes, where: list[int]) -> None:
    splitter = LineSplitter()
    found = [line for piece in cut(data, where) for line in splitter.feed(piece)] + [splitter.finish()]
    assert found == [line.removesuffix(b"\r") for line in data.split(b"\n")]


def test_events_follow_the_standard() -> None:
    splitter = EventSplitter()
    stream = b": c\nevent: x\nid: 3\ndata: one\ndata:two\n\n\n\ndata: \r\n\r\ndata:  s\n\nretry: 1\n\n"
    assert splitter.feed(stream) == [b"one\ntwo", b"", b" s"]
    assert splitter.feed(b"data: [DONE]") == [] and splitter.finish() == [b"[DONE]"]


ENDINGS_OF_LINES = [
    b"data: a\n\ndata: b\ndata: c\n\n", b"data: a\r\n\r\ndata: b\r\ndata: c\r\n\r\n", b"data: a\r\rdata: b\rdata: c\r\r",
    b"\xef\xbb\xbfdata: a\n\ndata: b\ndata: c\n\n", b"\xef\xbb\xbf: hi\r\n\r\nevent: x\rdata: a\r\n\rdata:b\ndata: c\n\r\n",
    b"data: a\n\n: ping\n\nid: 7\nretry: 10\n\ndata: b\ndata: c"]


@given(st.sampled_from(ENDINGS_OF_LINES), places)
def test_events_are_read_whatever_ends_their_lines_and_wherever_they_are_cut(stream: bytes, where: list[int]) -> None:
    splitter = EventSplitter()
    assert [event for piece in cut(stream, where) for event in splitter.feed(piece)] + splitter.finish() == [b"a", b"b\nc"]


@pytest.mark.parametrize("splitter", [LineSplitter(100), EventSplitter(100)])
def test_a_line_is_bounded_also_when_it_never_ends(splitter: LineSplitter | EventSplitter) -> None:
    splitter.feed(b"data: " + b"x" * 90)
    with pytest.raises(UpstreamError, match="100"):
        splitter.feed(b"x" * 90)


def test_an_event_of_many_lines_is_bounded() -> None:
    splitter = EventSplitter(100)
    with pytest.raises(UpstreamError, match="100"):
        for _ in range(20):
            splitter.feed(b"data: 1234567890\n")


@given(places)
def test_a_head_ends_where_it_ends_however_it_is_cut(where: list[int]) -> None:
    head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nA: b\r\n\r\n"
    meter = HeadMeter(len(head))
    for piece in cut(head[:-1], where):
        meter.feed(piece)
        assert not meter.ended
    meter.feed(head[-1:])
    assert meter.ended


def test_a_head_is_bounded() -> None:
    meter = HeadMeter(1000)
    with pytest.raises(UpstreamError, match="1000"):
        for _ in range(200):
            meter.feed(b"HTTP/1.1 100 Continue\r\n\r\n")


@pytest.mark.parametrize(("name", "finish", "total"), [
    ("llama-server-2026.10.11549/chat-stream.http", "length", 27), ("vllm-0.32.0-cpu/chat-stream.http", "length", 12)])
def test_captured_streams_are_read(name: str, finish: str, total: int) -> None:
    reader = StreamReader()
    events = reader.feed(captured(name)) + reader.finish()
    assert reader.done and reader.finish_reason == finish
    assert (reader.usage and reader.usage.total_tokens) == total
    assert all(event.raw for event in events) and events


def test_captured_tool_calls_travel_in_raw() -> None:
    reader = StreamReader()
    events = reader.feed(captured("llama-server-2026.10.11549/chat-stream-tool.sse"))
    assert reader.done and reader.finish_reason == "tool_calls"
    assert b'"name":"get_weather"' in events[1].raw and not any(event.output for event in events)


@pytest.mark.parametrize(("name", "text", "total"), [
    ("llama-server-2026.10.11549/chat.http", "\ufffd*\ufffd\na\x18J\ufffd", 31), ("vllm-0.32.0-cpu/chat.http", "", 20),
    ("vllm-0.32.0-cpu/completions.http", "hellohellohellohello", 5)])
def test_captured_whole_replies_are_read(name: str, text: str, total: int) -> None:
    reader = WholeReader()
    reader.feed(captured(name))
    [event] = reader.finish()
    assert (event.output, event.raw, reader.usage.total_tokens) == (text, captured(name), total)  # type: ignore[union-attr]


def test_a_captured_responses_stream_has_its_own_end() -> None:
    reader = ResponsesReader()
    reader.feed(captured("llama-server-2026.10.11549/responses-stream.http"))
    assert reader.done and reader.usage.total_tokens == 23  # type: ignore[union-attr]


@pytest.mark.parametrize(("chunk", "text"), [
    (b'{"choices":[{"index":0,"delta":{"content":["odd"]}}]}', ""),
    (b'{"choices":[{"index":1,"delta":{"content":"second"}}]}', ""),
    (b'{"choices":[],"prompt_filter_results":[]}', ""),
    (b'{"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}', "?"),
    (b'{"choices":[{"index":0,"delta":null}]}', ""),
    (b'{"choices":[{"index":0,"text":"old"}]}', "old"),
])
def test_odd_chunks_are_passed_on(chunk: bytes, text: str) -> None:
    [event] = StreamReader().feed(b"data: " + chunk + b"\n\n")
    assert (event.output, event.raw) == (text, chunk)


@pytest.mark.parametrize("reader", [StreamReader, ResponsesReader, MessagesReader, JoiningReader])
def test_what_is_nested_too_deep_is_a_fault_of_the_backends(reader: Any) -> None:
    with pytest.raises(UpstreamError):
        reader().feed(b'data: {"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n\n")
    whole = WholeReader()
    whole.feed(b'{"x":' * 100_000)
    with pytest.raises(UpstreamError):
        whole.finish()


def test_reasoning_has_its_channel_under_both_names() -> None:
    for name in (b"reasoning", b"reasoning_content"):
        [event] = StreamReader().feed(b'data: {"choices":[{"delta":{"' + name + b'":"hm","content":null}}]}\n\n')
        assert (event.output, event.channel) == ("hm", CHANNEL_REASONING)
