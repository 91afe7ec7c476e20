"""The content blocks of Anthropic's Messages API: tables of deltas to events, and to blocks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iop.adapters.wire.messages_whole import WholeMessage
from iop.edge.models.blocks import Blocks, Content, input_of
from iop.edge.models.deltas import CallBegin, CallPiece, Reasoning, Text

busy = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])     # the machine, not the code, may be slow


def told(*deltas: Any) -> list[tuple[Any, ...]]:
    """The events of Blocks, in short."""
    blocks = Blocks()
    found = [event for delta in deltas for event in blocks.add(delta)] + blocks.finish()
    return [(event["type"].removeprefix("content_block_"), event["index"],
             *(list(event["delta"].values())[1:] if "delta" in event else ()),
             *([event["content_block"]["type"]] if "content_block" in event else ())) for event in found]


def test_blocks_follow_each_other() -> None:
    assert told(Reasoning("h"), Reasoning("m"), Text("a"), CallBegin(0, "c", "n"), CallPiece(0, "{}"), Text("z")) == [
        ("start", 0, "thinking"), ("delta", 0, "h"), ("delta", 0, "m"), ("stop", 0),
        ("start", 1, "text"), ("delta", 1, "a"), ("stop", 1),
        ("start", 2, "tool_use"), ("delta", 2, "{}"), ("stop", 2),
        ("start", 3, "text"), ("delta", 3, "z"), ("stop", 3)]
    assert told() == []


def test_calls_in_a_row_are_told_as_they_come() -> None:
    blocks = Blocks()
    blocks.add(CallBegin(0, "a", "n"))
    assert [event["type"] for event in blocks.add(CallPiece(0, '{"x":1}'))] == ["content_block_delta"]
    assert [event["type"] for event in blocks.add(CallBegin(1, "b", "n"))] == ["content_block_stop", "content_block_start"]


def test_calls_that_come_interleaved_are_put_in_a_row_and_lose_nothing() -> None:
    found = told(CallBegin(0, "a", "n"), CallBegin(1, "b", "n"), CallPiece(1, '{"y"'), CallPiece(0, '{"x":'),
                 CallPiece(1, ":2}"), CallPiece(0, "1}"), CallPiece(1, " "))
    assert found == [
        ("start", 0, "tool_use"), ("delta", 0, '{"x":'), ("delta", 0, "1}"), ("stop", 0),
        ("start", 1, "tool_use"), ("delta", 1, '{"y"'), ("delta", 1, ":2}"), ("delta", 1, " "), ("stop", 1)]


def test_a_call_without_arguments_and_one_that_is_cut_end_with_the_answer() -> None:
    assert told(CallBegin(0, "a", "n"), CallBegin(1, "b", "n"), CallPiece(1, '{"y')) == [
        ("start", 0, "tool_use"), ("stop", 0), ("start", 1, "tool_use"), ("delta", 1, '{"y'), ("stop", 1)]


@pytest.mark.parametrize(("arguments", "found"), [
    ("", {}), (" ", {}), ('{"a":1}', {"a": 1}), ("{", {"INVALID_JSON": "{"}), ("[1]", {"INVALID_JSON": "[1]"}),
    ("null", {"INVALID_JSON": "null"})])
def test_the_input_of_a_call_is_always_an_object(arguments: str, found: object) -> None:
    assert input_of(arguments) == found


pieces_of_a_call = st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=6), max_size=3).flatmap(
    lambda value: st.lists(st.integers(0, 60), max_size=4).map(lambda places: cut(json.dumps(value), places)))
sayings = st.lists(st.builds(Text, st.text(min_size=1, max_size=4)) | st.builds(Reasoning, st.text(min_size=1, max_size=4)),
                   max_size=6)


def cut(text: str, places: list[int]) -> list[str]:
    marks = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in zip(marks, marks[1:], strict=False)]


@busy
@given(sayings, st.lists(pieces_of_a_call, max_size=3), st.randoms(use_true_random=False))
def test_a_stream_and_an_answer_in_one_piece_say_the_same_however_it_is_mixed(
        said: list[Text | Reasoning], calls: list[list[str]], chance: Any) -> None:
    queues: list[list[Any]] = [list(said)] if said else []
    queues += [[CallBegin(index, f"c{index}", "n"), *(CallPiece(index, piece) for piece in pieces)]
               for index, pieces in enumerate(calls)]
    blocks, content, joined = Blocks(), Content(), WholeMessage(10_000_000)
    joined.add(b'{"type":"message_start","message":{"stop_reason":"end_turn"}}')
    told: list[dict[str, Any]] = []
    while queues:
        queue = chance.choice(queues)
        delta = queue.pop(0)
        queues = [queue for queue in queues if queue]
        told += blocks.add(delta)
        content.add(delta)
    open_blocks: list[int] = []
    for event in told + blocks.finish():
        joined.add(json.dumps(event).encode())
        if event["type"] == "content_block_start":
            assert event["index"] == len(open_blocks), "counted from 0"
            assert all(block == -1 for block in open_blocks), "one after the other"
            open_blocks.append(event["index"])
        assert event["index"] == open_blocks[-1], "only the open block grows"
        if event["type"] == "content_block_stop":
            open_blocks[-1] = -1
    assert json.loads(joined.body())["content"] == json.loads(json.dumps(content.whole()))


def test_an_answer_in_one_piece_has_its_blocks_in_the_order_of_their_beginnings() -> None:
    content = Content()
    for delta in (Reasoning("h"), Text("a"), Text("b"), CallBegin(0, "c0", "n"), CallBegin(1, "c1", "m"),
                  CallPiece(1, '{"y":'), CallPiece(0, "{}"), CallPiece(1, "2}")):
        content.add(delta)
    assert content.whole() == [
        {"type": "thinking", "thinking": "h", "signature": ""}, {"type": "text", "text": "ab"},
        {"type": "tool_use", "id": "c0", "name": "n", "input": {}},
        {"type": "tool_use", "id": "c1", "name": "m", "input": {"y": 2}}]
