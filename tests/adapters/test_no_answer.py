"""A reply of 200 that is JSON, but no answer of the API that was asked, ends the run as failed: no end is invented."""

from __future__ import annotations

import json
from typing import Any

import pytest
import pytest_twisted

from iop.adapters import ollama
from iop.adapters.wire.asked import Reader
from iop.adapters.wire.ollama import NativeReader, OpenAIReader
from iop.adapters.wire.readers import readers_of
from iop.adapters.wire.requests import TYPED, passed_on
from iop.errors import UpstreamError
from iop.modelapis import COUNT_TOKENS, EMBEDDINGS, RERANK
from tests.adapters.asking import BODIES, Asked

NONE = [[], 3, None, "x", {}, {"choices": 3}, {"choices": []}, {"choices": [{}]}, {"choices": [3]}, {"content": 3},
        {"choices": [{"message": 3, "finish_reason": "stop"}]}, {"choices": [{"text": 3}]}, {"output": {}},
        {"id": "x", "usage": {"prompt_tokens": 1}}, [{"message": {"content": "a"}}], {"response": 3}, {"message": []}]
CHAT_BODY = {"model": "alias", "messages": [{"role": "user", "content": "hi"}]}
APIS = ["chat/completions", "completions", "messages", "responses"]


def whole_readers(api: str, *, stream: bool = False) -> list[Reader]:
    """All that may be given JSON, by the ways of asking."""
    found: list[Reader] = []
    for joined in (True, False):
        wanted = passed_on(api, json.dumps({"model": "a", "stream": stream}).encode(), "m", joined=joined)
        found += [reader for reader in readers_of(wanted, joined)
                  if reader.takes(b"application/json") or reader.takes(b"text/plain")]
    return found


def read(reader: Reader, body: bytes) -> list[Any]:
    return reader.feed(body) + reader.finish()


@pytest.mark.parametrize("body", NONE, ids=repr)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", APIS)
def test_json_that_is_no_answer_is_told_as_none(api: str, stream: bool, body: Any) -> None:
    readers = whole_readers(api, stream=stream)
    assert readers
    for reader in readers:
        with pytest.raises(UpstreamError, match=f"not one of the {api} API" if isinstance(body, (dict, list)) else None):
            assert read(reader, json.dumps(body).encode()) == []
            raise UpstreamError("The end marker is missing.")    # as the run has it, for what looks like a stream
        assert not reader.done


@pytest.mark.parametrize("body", NONE, ids=repr)
def test_json_that_is_no_answer_of_ollamas_is_told_as_none(body: Any) -> None:
    done = body | {"done": True} if isinstance(body, dict) else body
    for reader in (NativeReader(streams=False), NativeReader(), OpenAIReader("0" * 32, 1, "m", streams=False),
                   OpenAIReader("0" * 32, 1, "m", streams=True)):
        with pytest.raises(UpstreamError, match="Ollama"):
            read(reader, json.dumps(done).encode() + b"\n")
        assert not reader.done


@pytest.mark.parametrize("body", NONE, ids=repr)
@pytest.mark.parametrize("api", [EMBEDDINGS, RERANK, COUNT_TOKENS])
def test_what_only_passes_stays_whole(api: str, body: Any) -> None:
    sent = json.dumps(body).encode()
    reader = readers_of(passed_on(api, b'{"model":"a"}', "m"))[0]
    [event] = read(reader, sent)
    assert reader.done and event.raw == sent


ANSWERS: list[tuple[str, dict[str, Any]]] = [
    ("chat/completions", {"choices": [{"message": {"role": "assistant", "content": None}, "finish_reason": None}]}),
    ("chat/completions", {"choices": [{"message": {}}], "error": None}), ("completions", {"choices": [{"text": ""}]}),
    ("messages", {"type": "message", "content": [], "stop_reason": "end_turn"}),
    ("responses", {"object": "response", "status": "completed", "output": []})]


@pytest.mark.parametrize(("api", "body"), ANSWERS)
def test_an_empty_answer_is_one(api: str, body: dict[str, Any]) -> None:
    sent = json.dumps(body).encode()
    reader = next(reader for reader in whole_readers(api) if reader.takes(b"application/json"))
    [event] = read(reader, sent)
    assert reader.done and event.raw == sent and event.output == ""


FOREIGN: list[tuple[str, dict[str, Any]]] = [
    ("chat/completions", {"choices": [{"message": {"content": "hi"}, "finish_reason": 7}]}),
    ("chat/completions", {"choices": [{"message": {"content": "hi", "reasoning": {}}, "index": "0"}], "usage": 3}),
    ("completions", {"choices": [{"text": "hi", "finish_reason": ["stop"]}], "object": 1}),
    ("messages", {"content": [{"type": "text", "text": "hi"}, {"type": 3}], "stop_reason": 7, "usage": "none"}),
    ("responses", {"status": 3, "output": [{"type": "message", "content": [{"text": "hi"}, {"text": 1}]}, 5]})]


@pytest.mark.parametrize(("api", "body"), FOREIGN)
def test_a_field_of_a_foreign_type_takes_nothing_else_with_it(api: str, body: dict[str, Any]) -> None:
    sent = json.dumps(body).encode()
    reader = next(reader for reader in whole_readers(api) if reader.takes(b"application/json"))
    [event] = read(reader, sent)
    assert (event.output, event.raw) == ("hi", sent)
    assert reader.finish_reason in ("", "stop")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", [*APIS, "api/chat"])
@pytest_twisted.ensureDeferred
async def test_the_run_fails_in_words(asked: Asked, api: str, stream: bool) -> None:
    """In its own API and told in another; also where Ollama is asked."""
    body = BODIES.get(api, CHAT_BODY) | {"stream": stream}
    call = await asked.ask(body=json.dumps(body).encode(), api=api)
    call.whole(b'{"choices":3}')
    if stream and api in TYPED:
        await asked.fails("content type", status=200)
    else:
        await asked.fails("not one of the", "API", status=200)
    assert "output" not in asked.run.sink.kinds
    call = await asked.ask(ollama.factory, body=json.dumps(body).encode(), api=api)
    call.whole(b'{"choices":3,"done":true}\n', content_type="application/x-ndjson" if stream else "application/json")
    await asked.fails("not one of the Ollama API", status=200)


@pytest.mark.parametrize("answers", ["joined", "plain"])
@pytest.mark.parametrize(("stream", "wanted"), [(True, "text/event-stream"), (False, "application/json")])
@pytest.mark.parametrize("api", APIS)
@pytest_twisted.ensureDeferred
async def test_of_an_unusable_content_type_is_told_what_the_client_asked_for(
        asked: Asked, api: str, stream: bool, wanted: str, answers: str) -> None:
    body = BODIES.get(api, CHAT_BODY) | {"stream": stream}
    call = await asked.ask(body=json.dumps(body).encode(), api=api, settings={"answers": answers})
    call.whole(b"<html>", content_type="text/html")
    await asked.fails("'text/html'", f"where '{wanted}' was asked for", status=200)
