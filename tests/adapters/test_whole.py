"""Chunks joined into one answer: as the backend would have told it whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iop.adapters.wire.chat import StreamReader
from iop.adapters.wire.whole import JoiningReader, WholeAnswer
from iop.errors import UpstreamError
from tests.adapters.replies import captured


def chunk(*choices: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": list(choices)} | fields


def said(index: int = 0, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"index": index, "delta": delta, "finish_reason": finish}


def joined(*chunks: dict[str, Any], limit_bytes: int = 10_000) -> dict[str, Any]:
    answer = WholeAnswer(limit_bytes)
    for one in chunks:
        answer.add(json.dumps(one).encode())
    return json.loads(answer.body())


def message(*deltas: dict[str, Any]) -> dict[str, Any]:
    answer = joined(*(chunk(said(**delta)) for delta in deltas), chunk(said(finish="stop")))
    return answer["choices"][0]["message"]


def test_a_chat_is_told_as_one() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    assert joined(chunk(said(role="assistant", content=""), system_fingerprint="f", usage=None), chunk(said(content="Hel")),
                  chunk(said(content="lo")), chunk(said(finish="stop")),
                  chunk(usage=usage, timings={"predicted_n": 2}, obfuscation="x9")) == {
        "id": "c1", "object": "chat.completion", "created": 7, "model": "m", "system_fingerprint": "f", "usage": usage,
        "timings": {"predicted_n": 2},
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}]}


def test_of_a_field_beside_the_choices_the_last_that_says_something_counts() -> None:
    answer = joined(chunk(said(content="x"), prompt_token_ids=[1, 2], timings={"n": 1, "first": True}, metrics=None),
                    chunk(said(finish="stop"), prompt_token_ids=None, timings={"n": 2}))
    assert (answer["prompt_token_ids"], answer["timings"], answer["metrics"]) == ([1, 2], {"n": 2}, None)


def test_the_answers_stand_in_the_order_of_their_index() -> None:
    answer = joined(chunk(said(1, content="b")), chunk(said(0, content="a"), said(1, content="B")),
                    chunk(said(1, "length")), chunk(said(0, "stop")))
    assert [(choice["index"], choice["message"]["content"], choice["finish_reason"]) for choice in answer["choices"]] == [
        (0, "a", "stop"), (1, "bB", "length")]


def test_reasoning_refusals_and_texts_of_an_engines_own_are_joined() -> None:
    told = message({"role": "assistant", "reasoning_content": "hm"}, {"role": "assistant", "reasoning_content": "m"},
                   {"thoughts": "a"}, {"content": "x", "thoughts": "b"},
                   {"reasoning_details": [{"index": 0, "type": "text", "text": "p"}]},
                   {"reasoning_details": [{"index": 0, "type": "text", "text": "q"}]})
    assert told == {"role": "assistant", "content": "x", "reasoning_content": "hmm", "thoughts": "ab",
                    "reasoning_details": [{"index": 0, "type": "text", "text": "pq"}]}
    assert message({"refusal": "I can"}, {"refusal": "not"}) == {"role": "assistant", "content": None, "refusal": "I cannot"}


def call(index: int | None, arguments: str, **more: Any) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": more.pop("name")} if "name" in more else {})
    return ({} if index is None else {"index": index}) | more | {"function": function}


@pytest.mark.parametrize("again", [{}, {"id": "", "name": ""}, {"id": "i0", "type": "function", "name": "f"}])
def test_calls_are_joined_by_their_index_whatever_a_later_fragment_repeats(again: dict[str, Any]) -> None:
    told = message({"role": "assistant", "content": None}, {"tool_calls": [call(0, "", id="i0", type="function", name="f")]},
                   {"tool_calls": [call(1, "{", id="i1", type="function", name="g")]},
                   {"tool_calls": [call(0, '{"a', **again)]},
                   {"tool_calls": [call(0, '":1}'), call(1, "}")]})
    assert told == {"role": "assistant", "content": None, "tool_calls": [
        {"id": "i0", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
        {"id": "i1", "type": "function", "function": {"name": "g", "arguments": "{}"}}]}


def test_calls_without_an_index_are_calls_by_themselves() -> None:
    told = message({"tool_calls": [call(None, "{}", id="a", name="f")]}, {"tool_calls": [call(None, "{}", id="b", name="f")]})
    assert [found["id"] for found in told["tool_calls"]] == ["a", "b"]


@pytest.mark.parametrize(("delta", "content"), [
    ({"content": ""}, ""), ({"content": None}, ""), ({}, ""), ({"content": "", "tool_calls": []}, ""),
    ({"content": "", "tool_calls": [call(0, "{}", id="i", name="f")]}, None),
    ({"content": "x", "tool_calls": [call(0, "{}", id="i", name="f")]}, "x")])
def test_content_is_null_only_where_something_stands_for_it(delta: dict[str, Any], content: str | None) -> None:
    assert message(delta)["content"] == content


def test_logprobs_are_one_list_of_all_tokens() -> None:
    def token(text: str) -> dict[str, Any]:
        return {"token": text, "logprob": -0.5, "bytes": [65], "top_logprobs": [{"token": text, "logprob": -0.5}]}

    answer = joined(chunk(said(content="") | {"logprobs": None}),
                    chunk(said(content="a") | {"logprobs": {"content": [token("a")], "refusal": None}}),
                    chunk(said(content="b") | {"logprobs": {"content": [token("b")], "refusal": None}}),
                    chunk(said(finish="stop") | {"logprobs": None, "stop_reason": 2, "token_ids": None}))
    assert answer["choices"][0]["logprobs"] == {"content": [token("a"), token("b")], "refusal": None}
    assert (answer["choices"][0]["stop_reason"], answer["choices"][0]["token_ids"]) == (2, None)


def test_the_older_completions_are_joined_too() -> None:
    def piece(text: str, finish: str | None, *told: tuple[str, int]) -> dict[str, Any]:
        logprobs = {"tokens": [word for word, _ in told], "text_offset": [offset for _, offset in told],
                    "top_logprobs": [{word: -1.0} for word, _ in told]}
        return {"id": "c", "object": "text_completion",
                "choices": [{"index": 0, "text": text, "finish_reason": finish, "logprobs": logprobs}]}

    assert joined(piece("one", None, ("one", 0)), piece(" two", "stop", (" two", 3))) == piece(
        "one two", "stop", ("one", 0), (" two", 3))


def test_an_emoji_whose_halves_came_apart_is_one_again() -> None:
    logprobs = {"content": [{"token": "\ud83d"}]}
    answer = joined(chunk(said(content="\ud83d") | {"logprobs": logprobs}), chunk(said(content="\ude00", finish="stop")))
    assert answer["choices"][0]["message"]["content"] == "\U0001f600"


@given(st.lists(st.text(max_size=8), max_size=12))
def test_the_text_is_the_pieces_in_a_row(pieces: list[str]) -> None:
    assert message(*({"content": piece} for piece in pieces))["content"] == "".join(pieces)


# --- what is no answer ---


@pytest.mark.parametrize("chunks", [[], [chunk()], [chunk(usage={"prompt_tokens": 1})], [{"choices": 5}]])
@pytest.mark.parametrize("kind", [JoiningReader, StreamReader])
def test_an_end_mark_without_a_choice_ends_no_answer(kind: Any, chunks: list[dict[str, Any]]) -> None:
    reader, api = kind(api="completions"), "not one of the completions API"
    for one in chunks:
        reader.feed(b"data: " + json.dumps(one).encode() + b"\n\n")
    with pytest.raises(UpstreamError, match=api):
        reader.feed(b"data: [DONE]\n\n")
    assert not reader.done


@pytest.mark.parametrize(("chunks", "told"), [
    ([chunk(said(role="assistant"))], [("", None)]), ([chunk(said(content="x"))], [("x", None)]),
    ([chunk(said(content="x", finish=7))], [("x", 7)]), ([chunk({"index": 0, "finish_reason": "stop"})], [("", "stop")]),
    ([chunk(said(0, "stop", content="x")), chunk(said(1, content="y"))], [("x", "stop"), ("y", None)])])
def test_an_answer_with_an_end_mark_is_whole_streamed_or_joined_and_no_finish_reason_is_invented(
        chunks: list[dict[str, Any]], told: list[tuple[str, Any]]) -> None:
    stream = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in chunks) + b"data: [DONE]\n\n"
    joining, streaming = JoiningReader(), StreamReader()
    [event] = joining.feed(stream)
    assert [(choice["message"]["content"], choice["finish_reason"]) for choice in json.loads(event.raw)["choices"]] == told
    assert [json.loads(event.raw) for event in streaming.feed(stream)] == chunks
    assert joining.done and streaming.done and joining.finish_reason == streaming.finish_reason


@pytest.mark.parametrize(("error", "status"), [({"message": "no memory", "code": 500}, 500), ({"message": "no memory"}, 0),
                                               ("no memory", 0), ({"message": "no memory", "code": "oom"}, 0)])
def test_an_error_is_the_backends_own(error: Any, status: int) -> None:
    payload = json.dumps({"error": error}).encode()
    with pytest.raises(UpstreamError, match="no memory") as caught:
        WholeAnswer().add(payload)
    assert (caught.value.status, caught.value.body) == (status, payload)


@pytest.mark.parametrize("payload", [b"{not json", b"[]", b"1", b'"x"', b'{"choices":' + b"[" * 100_000])
def test_what_is_no_chunk_is_refused(payload: bytes) -> None:
    with pytest.raises(UpstreamError, match="chunk"):
        JoiningReader().feed(b"data: " + payload + b"\n\n")


def test_what_counts_against_the_limit_is_the_answer_and_not_its_chunks() -> None:
    pieces = [chunk(said(content="word "))] * 400           # 2,000 bytes of text in 50,000 of chunks
    assert len(joined(*pieces, chunk(said(finish="stop")), limit_bytes=2_500)["choices"][0]["message"]["content"]) == 2_000
    with pytest.raises(UpstreamError, match="1500"):
        joined(*pieces, limit_bytes=1_500)


@pytest.mark.parametrize("more", [
    lambda number: said(content="x" * 50), lambda number: said(number, content=""),
    lambda number: said(**{f"field{number}": ""}), lambda number: said() | {"logprobs": {"content": [{}]}}])
def test_an_answer_without_end_is_bounded_whatever_grows(more: Any) -> None:
    with pytest.raises(UpstreamError, match="5000"):
        joined(*(chunk(more(number)) for number in range(5_000)), limit_bytes=5_000)


def test_the_joined_body_is_bounded_exactly() -> None:
    stream = b"data: " + json.dumps(chunk(said(content="x" * 300, finish="stop"))).encode() + b"\n\ndata: [DONE]\n\n"
    with pytest.raises(UpstreamError, match="400"):
        JoiningReader(400).feed(stream)
    [event] = JoiningReader(600).feed(stream)
    assert event.output == "x" * 300


# --- captured streams ---


@pytest.mark.parametrize(("name", "finish", "total"), [
    ("llama-server-2026.10.11549/chat-stream.http", "length", 27), ("vllm-0.32.0-cpu/chat-stream.http", "length", 12)])
def test_captured_streams_become_one_answer(name: str, finish: str, total: int) -> None:
    reader = JoiningReader()
    [event] = reader.feed(captured(name))
    assert (reader.done, reader.finish_reason, reader.usage and reader.usage.total_tokens) == (True, finish, total)
    answer = json.loads(event.raw)
    assert (answer["object"], answer["usage"]["total_tokens"]) == ("chat.completion", total)
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": event.output}


def test_a_captured_call_is_one_call() -> None:
    reader = JoiningReader()
    [event] = reader.feed(captured("llama-server-2026.10.11549/chat-stream-tool.sse"))
    [choice] = json.loads(event.raw)["choices"]
    [made] = choice["message"]["tool_calls"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
    assert set(made) == {"id", "type", "function"} and made["function"]["name"] == "get_weather"
    assert "city" in json.loads(made["function"]["arguments"])
