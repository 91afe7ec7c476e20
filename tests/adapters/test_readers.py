"""Whatever a backend sends, a reader tells events or raises UpstreamError; nothing else comes of it, however it is cut."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iop.adapters.wire.asked import Reader
from iop.adapters.wire.chat import StreamReader, WholeReader
from iop.adapters.wire.messages_reply import MessageReader, MessagesReader
from iop.adapters.wire.messages_whole import JoiningMessageReader
from iop.adapters.wire.ollama import NativeReader, OpenAIReader
from iop.adapters.wire.ollama_embed import EmbeddingsReader, EmbedReader
from iop.adapters.wire.passing import PassingReader, SloppyReader, UnstreamedReader
from iop.adapters.wire.readers import readers_of
from iop.adapters.wire.requests import APIS, passed_on
from iop.adapters.wire.responses_reply import JoiningResponseReader, ResponseReader, ResponsesReader
from iop.adapters.wire.tokens import MOST
from iop.adapters.wire.whole import JoiningReader
from iop.errors import UpstreamError
from iop.proto.run_pb2 import Usage
from tests.adapters.replies import cut, places

READERS: list[Callable[[], Reader]] = [
    StreamReader, WholeReader, JoiningReader, UnstreamedReader, PassingReader, ResponsesReader, ResponseReader,
    JoiningResponseReader, MessagesReader, MessageReader, JoiningMessageReader, EmbedReader, NativeReader,
    lambda: EmbeddingsReader("m", as_base64=True), lambda: NativeReader(streams=False),
    lambda: OpenAIReader("0" * 32, 1, "m", streams=True), lambda: OpenAIReader("0" * 32, 1, "m", streams=False),
    lambda: SloppyReader(StreamReader, UnstreamedReader, b"text/event-stream")]
WORDS = ["choices", "delta", "message", "content", "tool_calls", "index", "finish_reason", "usage", "error", "type",
         "response", "output", "item", "text", "thinking", "done", "embeddings", "prompt_tokens", "object", "code",
         "function", "arguments", "reasoning_content", "content_block", "stop_reason", "status", "prompt_eval_count"]
KINDS = ["response.completed", "response.output_item.done", "response.failed", "error", "message_start",
         "content_block_start", "content_block_delta", "message_delta", "message_stop", "chat.completion", "text", "tool_use",
         "text_delta"]
HUGE = [2 ** 40 + 1, 2 ** 63, 2 ** 64, -2 ** 64, 10 ** 30]
COUNTS = """
{"choices": [{"delta": {"content": "a"}, "message": {"content": "a"}, "finish_reason": "stop"}], "usage": {
 "prompt_tokens": N, "completion_tokens": N, "total_tokens": N, "prompt_tokens_details": {"cached_tokens": N}}}
{"type": "message", "content": [], "stop_reason": "end_turn", "usage": {
 "input_tokens": N, "output_tokens": N, "cache_read_input_tokens": N, "cache_creation_input_tokens": N}}
{"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"input_tokens": N, "output_tokens": N}}
{"type": "response.completed", "response": {"status": "completed", "output": [], "usage": {
 "input_tokens": N, "output_tokens": N, "total_tokens": N, "input_tokens_details": {"cached_tokens": N}}}}
{"status": "completed", "object": "response", "output": [], "usage": {"input_tokens": N, "output_tokens": N}}
{"done": true, "done_reason": "stop", "message": {"content": "a"}, "prompt_eval_count": N, "eval_count": N}
{"embeddings": [[1.0]], "prompt_eval_count": N}""".replace("\n ", "").split("\n")[1:]
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 600) | st.sampled_from(HUGE) | st.floats() | st.sampled_from(KINDS)
    | st.text(max_size=4) | st.just("\ud83d"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5), max_leaves=12)
objects = st.dictionaries(st.sampled_from(WORDS), values, max_size=6)
lines = st.one_of(objects.map(json.dumps), values.map(json.dumps), st.just("[DONE]"), st.text(max_size=9))


def told(reader: Reader, pieces: list[bytes]) -> list[Any]:
    found: list[Any] = []
    for piece in pieces:
        found += reader.feed(piece)
        if reader.fault is not None:
            raise reader.fault
    return found + ([] if reader.done else reader.finish())


@given(st.sampled_from(READERS), st.lists(lines, max_size=5), st.sampled_from(["data: ", ""]), places)
def test_whatever_comes_is_told_or_a_fault_of_the_backends(kind: Any, sent: list[str], prefix: str, where: list[int]) -> None:
    data = "".join(f"{prefix}{line}\n\n" for line in sent).encode("utf-8", "surrogatepass")
    try:
        for event in told(kind(), cut(data, where)):
            event.SerializeToString()
    except UpstreamError as error:
        assert error.message


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize("counts", COUNTS)
def test_a_count_of_tokens_that_can_be_none_is_left_out(counts: str, number: int) -> None:
    for kind in READERS:
        for prefix in ("data: ", ""):
            reader = kind()
            try:
                found = told(reader, [f"{prefix}{counts.replace('N', str(number))}\n\n".encode()])
            except UpstreamError:                # another API's
                continue
            usages = [event.usage for event in found if event.HasField("usage")] + [reader.usage or Usage()]
            assert max(max(usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) for usage in usages) <= MOST


@given(st.sampled_from(READERS), st.binary(max_size=80), places)
def test_any_bytes_are_told_or_a_fault_of_the_backends(kind: Any, data: bytes, where: list[int]) -> None:
    try:
        told(kind(), cut(data, where))
    except UpstreamError as error:
        assert error.message


@pytest.mark.parametrize("api", sorted(APIS))
@pytest.mark.parametrize("stream", [True, False])
def test_each_api_has_a_reader_for_what_it_asks(api: str, stream: bool) -> None:
    readers = readers_of(passed_on(api, json.dumps({"model": "a", "stream": stream}).encode(), "m"))
    assert any(reader.takes(b"application/json") for reader in readers) or stream
    if api in ("responses", "messages", "chat/completions", "completions"):
        assert any(reader.takes(b"text/event-stream") for reader in readers)
        assert not any(reader.takes(b"text/html") for reader in readers)
