"""What a run says, from each of the ways in which it can be said."""

import json

import pytest

from iop import events
from iop.edge.models.deltas import CallBegin, CallPiece, Deltas, Note, Reasoning, Text
from iop.proto import run_pb2
from iop.proto.run_pb2 import CHANNEL_REASONING, CHANNEL_STDERR, CHANNEL_STDOUT, RuntimeEvent
from tests.edge.models.conftest import chat_chunk, completed, entry, started, tool_chunk


def read(api, *told, deltas=None):
    """The deltas of one batch."""
    deltas = deltas or Deltas(api)
    return deltas, deltas.read(entry(*told))


def call(index, call_id=None, name=None, arguments=None):
    return tool_chunk(index=index, id=call_id, function={"name": name, "arguments": arguments})


def test_chunks_of_the_clients_own_api_are_native_and_not_read():
    deltas, found = read("chat/completions", started(), chat_chunk(content="a"))
    assert (deltas.native, found) == (True, [])
    deltas, found = read("messages", started(), events.output("x", raw=b'{"type":"message_start"}'))
    assert (deltas.native, found) == (True, [])


def test_chunks_of_another_api_are_read():
    deltas, found = read("messages", started("chat/completions"), chat_chunk(reasoning="hm"),
                         chat_chunk("length", content="a"))
    assert (deltas.native, found) == (False, [Reasoning("hm"), Text("a")])
    assert deltas.ending.finish_reason == "length"


def test_without_a_word_of_the_node_the_looks_of_the_first_chunk_decide():
    begun = events.started("mock", "m")
    assert read("chat/completions", begun, chat_chunk(content="a"))[0].native
    assert not read("responses", begun, chat_chunk(content="a"))[0].native
    assert read("responses", begun, events.output("", raw=b'{"type":"response.created"}'))[0].native
    assert not read("chat/completions", begun, events.output("a"))[0].native


def test_the_attempt_that_spoke_decides():
    deltas, _ = read("chat/completions", started())
    assert deltas.native
    _, found = read("", events.started("cli", "echo"), events.output("a"), deltas=deltas)
    assert (deltas.native, found) == (False, [Text("a")])


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_told_apart_under_either_name(field):
    assert read("messages", started("chat/completions"), chat_chunk(**{field: "hm"}))[1] == [Reasoning("hm")]


def test_a_whole_body_is_read_like_its_chunks():
    message = {"role": "assistant", "content": "a", "reasoning_content": "hm", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"x":1}'}}]}
    raw = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
    deltas, found = read("messages", started("chat/completions"), events.output("a", raw=raw))
    assert found == [Reasoning("hm"), Text("a"), CallBegin(0, "c1", "look"), CallPiece(0, '{"x":1}')]
    assert deltas.ending.finish_reason == "tool_calls"


def test_parallel_calls_keep_their_pieces_apart():
    deltas, found = read("messages", started("chat/completions"), call(0, "a", "f", ""), call(0, arguments="{"),
                         call(1, "b", "g", ""), call(1, arguments="[]"), call(0, arguments="}"))
    assert found == [CallBegin(0, "a", "f"), CallPiece(0, "{"), CallBegin(1, "b", "g"), CallPiece(1, "[]"), CallPiece(0, "}")]
    assert deltas.ending.calls == 2


def test_calls_that_all_have_the_index_0_are_told_apart_by_their_ids():
    _, found = read("messages", started("chat/completions"), call(0, "a", "f", "{}"), call(0, "b", "g", "[]"))
    assert found == [CallBegin(0, "a", "f"), CallPiece(0, "{}"), CallBegin(1, "b", "g"), CallPiece(1, "[]")]


def test_a_call_without_an_id_gets_one_and_an_object_becomes_text():
    _, found = read("messages", started("chat/completions"), call(0, None, "f", {"x": 1}))
    assert found == [CallBegin(0, "call_r1_0", "f"), CallPiece(0, '{"x":1}')]


@pytest.mark.parametrize(("told", "calls", "means"), [
    ("stop", 1, "tool_calls"), ("", 1, "tool_calls"), ("function_call", 1, "tool_calls"), ("length", 1, "length"),
    ("stop", 0, "stop"), ("", 0, "stop"), ("content_filter", 0, "content_filter")])
def test_a_model_that_called_tools_waits_for_them(told, calls, means):
    pieces = [call(0, "a", "f", "{}")] * calls
    deltas, _ = read("messages", started("chat/completions"), *pieces, events.ending("completed", completed(told)))
    assert deltas.ending.finish_reason == means


def test_of_several_answers_the_first_is_told():
    assert read("messages", started("chat/completions"), chat_chunk(index=1, content="b"), chat_chunk(content="a"))[1] == [
        Text("a")]


def test_a_chunk_in_no_known_form_counts_as_what_its_node_read_of_it():
    odd = events.output("a", raw=b'{"choices":[{"delta":{"tool_calls":7}}]}')
    parts = chat_chunk(content=[{"type": "text", "text": "b"}, {"type": "image"}])
    assert read("messages", started("chat/completions"), odd, parts)[1] == [Text("a"), Text("b")]


@pytest.mark.parametrize("finish", [7, ["stop"], {}, True])
@pytest.mark.parametrize(("kind", "more"), [("message", {}), ("delta", {}), ("delta", {"reasoning": {}, "refusal": 3}),
                                            ("message", {"role": 3})])
def test_a_field_of_a_foreign_type_takes_nothing_else_with_it_and_an_unknown_finish_reason_is_not_told(finish, kind, more):
    raw = json.dumps({"choices": [{"index": 0, kind: {"content": "a"} | more, "finish_reason": finish}]}).encode()
    deltas, found = read("messages", started("chat/completions"), events.output("", raw=raw))
    assert (found, deltas.ending.finish) == ([Text("a")], "")


def test_plain_events_of_programs_are_text_reasoning_and_notes():
    tool = RuntimeEvent(at_us=1, tool_call=run_pb2.ToolCall(call_id="1", name="bash", arguments=b'{"x":1}'))
    _, found = read("messages", events.started("cli", "echo"), events.output("hm", CHANNEL_REASONING),
                    events.output("a", CHANNEL_STDOUT), events.output("no", CHANNEL_STDERR), tool)
    assert found[:2] == [Reasoning("hm"), Text("a")]
    assert [type(delta) for delta in found[2:]] == [Note]
    assert (found[2].item["type"], found[2].item["name"], found[2].item["id"]) == ("tool_started", "bash", "1.5")


def test_warnings_are_kept_for_the_header():
    told = RuntimeEvent(at_us=1, status=run_pb2.Status(word="warning", detail="web_search is skipped"))
    assert read("responses", started("chat/completions"), told)[0].ending.warnings == ["web_search is skipped"]
