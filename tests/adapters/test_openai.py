"""What the openai adapter asks of its backend, and what it tells of the reply."""

from __future__ import annotations

import json
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.task import Clock

from iop.adapters import openai
from iop.errors import Cancelled, ConfigError
from iop.proto.run_pb2 import CHANNEL_REASONING, CHANNEL_TEXT
from tests.adapters.asking import Asked
from tests.adapters.kit import Tools, target, until
from tests.adapters.upstream import delta

CHAT = {"model": "alias", "messages": [{"role": "user", "content": "hi"}], "stream": True, "seed": 1.50, "x": {"y": [1e2]}}


@pytest_twisted.ensureDeferred
async def test_a_streaming_chat_arrives_chunk_by_chunk_with_the_backends_bytes(asked: Asked) -> None:
    call = await asked.ask(body=json.dumps(CHAT).encode(), api="chat/completions")
    call.stream_head()
    await until(lambda: asked.run.sink.kinds == ["started"])
    call.words("Hel", "lo")
    await until(lambda: asked.run.sink.text() == "Hello")
    call.event(delta(reasoning_content="hm"))
    call.end()
    kind, outcome = await asked.run.ended()
    assert (kind, outcome.code, outcome.finish_reason, outcome.usage.total_tokens) == ("completed", "ok", "stop", 5)
    sink = asked.run.sink
    assert sink.kinds == ["started", "output", "output", "output", "output", "usage"]
    assert sink.text(CHANNEL_REASONING) == "hm" and sink.text(CHANNEL_TEXT) == "Hello"
    assert sink.events[1].raw == json.dumps(delta("Hel")).encode()
    assert json.loads(sink.events[0].started.response) == {"status": 200, "content_type": "text/event-stream"}


@pytest_twisted.ensureDeferred
async def test_the_body_travels_whole_but_for_the_model_and_the_wish_for_usage(asked: Asked) -> None:
    call = await asked.ask(settings={"model": "backend-name"}, body=json.dumps(CHAT).encode(), api="chat/completions")
    line, headers, body = asked.upstream.requests[0]
    assert line == "POST /v1/chat/completions HTTP/1.1"
    assert headers["accept-encoding"] == "identity" and headers["content-type"] == "application/json"
    assert json.loads(body) == CHAT | {"model": "backend-name", "stream_options": {"include_usage": True}}
    assert b'"seed":1.5,"x":{"y": [100.0]}' in body
    call.stream_head()
    call.end()
    await asked.run.ended()


@pytest_twisted.ensureDeferred
async def test_a_prompt_becomes_a_streaming_chat(asked: Asked) -> None:
    call = await asked.ask(prompt="hi")
    assert json.loads(asked.upstream.requests[0][2]) == {
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True,
        "stream_options": {"include_usage": True}}
    call.stream_head()
    call.end()
    await asked.run.ended()


@pytest_twisted.ensureDeferred
async def test_a_body_that_does_not_stream_is_one_output_with_the_whole_reply(asked: Asked) -> None:
    call = await asked.ask(body=b'{"model":"a","messages":[]}', api="chat/completions")
    choice = {"index": 0, "message": {"role": "assistant", "content": "hey"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    reply = json.dumps({"choices": [choice], "usage": usage}).encode()
    call.whole(reply)
    kind, outcome = await asked.run.ended()
    assert (kind, outcome.finish_reason, outcome.usage.completion_tokens) == ("completed", "stop", 2)
    assert asked.run.sink.kinds == ["started", "output"]
    assert (asked.run.sink.events[1].output, asked.run.sink.events[1].raw) == ("hey", reply)


@pytest_twisted.ensureDeferred
async def test_all_chunks_of_one_read_are_one_emit(asked: Asked) -> None:
    call = await asked.ask()
    call.stream_head()
    await until(lambda: asked.run.sink.kinds)
    call.words(*(str(number) for number in range(50)))
    await until(lambda: len(asked.run.sink.events) == 51)
    assert len(asked.run.sink.batches) <= 3
    call.end()
    await asked.run.ended()


@pytest_twisted.ensureDeferred
async def test_the_end_of_a_long_prompt_does_not_wait_for_an_acknowledgement(asked: Asked) -> None:
    await asked.ask()
    assert [reader.getTcpNoDelay() for reader in reactor.getReaders() if hasattr(reader, "connector")] == [True]
    asked.run.execution.stop(Cancelled())


@pytest_twisted.ensureDeferred
async def test_the_api_key_comes_from_a_private_file_and_is_sent_as_a_bearer(asked: Asked, tmp_path: Any) -> None:
    key = tmp_path / "key"
    key.write_text("sk-secret\n")
    key.chmod(0o600)
    call = await asked.ask(settings={"api_key_file": str(key), "headers": {"X-Team": "blue"}})
    headers = asked.upstream.requests[0][1]
    assert (headers["authorization"], headers["x-team"]) == ("Bearer sk-secret", "blue")
    call.stream_head()
    call.end()
    await asked.run.ended()
    key.chmod(0o644)
    with pytest.raises(ConfigError):
        openai.factory.build({"m": openai.factory.settings(target("m", url="http://h/v1", api_key_file=str(key)))},
                             Tools(Clock()))
