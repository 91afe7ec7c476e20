"""Each model API at an OpenAI-compatible backend that has it: whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.task import Clock

from iop.adapters import openai
from tests.adapters.asking import BODIES, MESSAGES, Asked, raws, response
from tests.adapters.kit import Started, Tools, target, until
from tests.adapters.replies import captured
from tests.adapters.upstream import Upstream


@pytest.mark.parametrize(("api", "body", "reply"), [
    ("embeddings", {"input": ["a", "b"], "encoding_format": "base64", "x": 1.50},
     {"object": "list", "data": [{"embedding": "AAAA", "index": 0}], "usage": {"prompt_tokens": 4, "total_tokens": 4}}),
    ("rerank", {"query": "q", "documents": ["a"]}, {"results": [{"index": 0, "relevance_score": 0.5}]}),
    ("images/generations", {"prompt": "a cat", "n": 1}, {"created": 1, "data": [{"b64_json": "aGk="}]}),
    ("messages/count_tokens", {"messages": []}, {"input_tokens": 17}),
])
@pytest_twisted.ensureDeferred
async def test_a_whole_reply_passes_as_it_is(asked: Asked, api: str, body: dict[str, Any], reply: dict[str, Any]) -> None:
    call = await asked.ask(settings={"model": "theirs"}, body=json.dumps({"model": "alias"} | body).encode(), api=api)
    line, headers, sent = asked.upstream.requests[0]
    assert line == f"POST /v1/{api} HTTP/1.1" and headers["content-type"] == "application/json"
    assert json.loads(sent) == {"model": "theirs"} | body
    call.whole(json.dumps(reply).encode())
    assert (await asked.run.ended())[0] == "completed"
    assert asked.run.sink.kinds == ["started", "output"] and json.loads(raws(asked)) == reply
    assert response(asked) == {"status": 200, "content_type": "application/json"}


@pytest_twisted.ensureDeferred
async def test_the_tokens_of_embeddings_are_counted(asked: Asked) -> None:
    call = await asked.ask(body=b'{"model":"a","input":"x"}', api="embeddings")
    call.whole(b'{"object":"list","data":[],"usage":{"prompt_tokens":4,"total_tokens":4}}')
    assert (await asked.run.ended())[1].usage.total_tokens == 4


@pytest.mark.parametrize(("api", "body", "reply"), [
    ("responses", {"input": "hi"}, {"id": "r", "object": "response", "status": "completed", "error": None, "output": []}),
    ("messages", {"messages": [], "max_tokens": 1}, {"type": "message", "content": [{"type": "text", "text": "hey"}]})])
@pytest.mark.parametrize("refused", [True, False])
@pytest_twisted.ensureDeferred
async def test_a_native_answer_in_one_piece_is_asked_for_as_a_stream(
        asked: Asked, api: str, body: dict[str, Any], reply: dict[str, Any], refused: bool) -> None:
    call = await asked.ask(settings={"answers": "joined"}, body=json.dumps({"model": "alias"} | body).encode(), api=api,
                           query="beta=true")
    assert json.loads(asked.upstream.requests[0][2]) == body | {"model": "m", "stream": True}
    if refused:
        call.whole(b'{"error":{"message":"no stream here"}}', "400 Bad")
        call = await until(lambda: len(asked.upstream.calls) == 2 and asked.upstream.calls[1])
        line, headers, sent = asked.upstream.requests[1]
        assert json.loads(sent) == body | {"model": "m"} and line == f"POST /v1/{api}?beta=true HTTP/1.1"
        assert ("anthropic-version" in headers) is (api == "messages")
    call.whole(json.dumps(reply).encode())
    assert (await asked.run.ended())[0] == "completed"
    assert asked.run.sink.kinds == ["started", "output"] and json.loads(raws(asked)) == reply
    assert response(asked) == {"status": 200, "content_type": "application/json"}


@pytest.mark.parametrize("items_at_the_end", [True, False])
@pytest_twisted.ensureDeferred
async def test_the_last_event_of_a_response_is_its_whole_answer(asked: Asked, items_at_the_end: bool) -> None:
    item = {"type": "message", "content": [{"type": "output_text", "text": "Hello"}], "x": 1.50}
    answer = {"id": "r", "object": "response", "status": "completed", "error": None, "output": [item],
              "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}}
    call = await asked.ask(body=b'{"model":"a","input":"hi"}', api="responses")
    call.stream_head()
    call.event({"type": "response.created", "response": {"id": "r"}})
    call.event({"type": "response.output_text.delta", "delta": "Hello"})
    call.event({"type": "response.output_item.done", "item": item})
    call.event({"type": "response.completed", "response": answer if items_at_the_end else answer | {"output": []}})
    call.send(b"0\r\n\r\n")
    kind, outcome = await asked.run.ended()
    assert (kind, outcome.usage.total_tokens, outcome.finish_reason) == ("completed", 3, "stop")
    assert asked.run.sink.kinds == ["started", "output"] and asked.run.sink.text() == "Hello"
    assert json.loads(raws(asked)) == answer
    assert response(asked) == {"status": 200, "content_type": "application/json"}


@pytest_twisted.ensureDeferred
async def test_a_messages_stream_is_joined_for_who_wants_it_whole(asked: Asked) -> None:
    call = await asked.ask(body=json.dumps(MESSAGES | {"stream": False}).encode(), api="messages")
    call.stream_head()
    call.chunk(captured("llama-server-2026.10.11549/messages-stream.http"))
    call.send(b"0\r\n\r\n")
    kind, outcome = await asked.run.ended()
    assert kind == "completed" and outcome.usage.total_tokens
    message = json.loads(raws(asked))
    assert message["type"] == "message" and message["content"] and message["stop_reason"]


SOUND = bytes(range(256)) * 300


@pytest_twisted.ensureDeferred
async def test_speech_arrives_byte_for_byte_while_it_is_spoken(asked: Asked) -> None:
    call = await asked.ask(body=b'{"model":"a","input":"say it","voice":"v"}', api="audio/speech")
    call.head(Content_Type="audio/mpeg", Transfer_Encoding="chunked")
    call.chunk(SOUND[:1000])
    await until(lambda: raws(asked) == SOUND[:1000])
    call.chunk(SOUND[1000:])
    call.send(b"0\r\n\r\n")
    assert (await asked.run.ended())[0] == "completed"
    assert raws(asked) == SOUND and not asked.run.sink.text()
    assert response(asked) == {"status": 200, "content_type": "audio/mpeg"}


@pytest_twisted.ensureDeferred
async def test_speech_that_is_cut_off_has_failed(asked: Asked) -> None:
    call = await asked.ask(body=b'{"model":"a","input":"say it"}', api="audio/speech")
    call.head(Content_Type="audio/mpeg", Content_Length=str(len(SOUND)))
    call.send(SOUND[:-1])
    await until(lambda: raws(asked) == SOUND[:-1])
    call.close()
    assert (await asked.fails("broke off")).retryable is False


def form(*fields: tuple[str, bytes], boundary: bytes = b"xX--") -> bytes:
    parts = [b'--%s\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (boundary, name.encode(), value)
             for name, value in fields]
    file = (b'--%s\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\n%s\r\n'
            % (boundary, SOUND))
    return b"".join([*parts, file, b"--%s--\r\n" % boundary])


@pytest_twisted.ensureDeferred
async def test_of_a_form_only_the_model_is_replaced(asked: Asked) -> None:
    kind = 'multipart/form-data; boundary="xX--"'
    call = await asked.ask(settings={"model": "whisper-of-theirs"}, api="audio/transcriptions", content_type=kind,
                           body=form(("language", b"en"), ("model", b"alias"), ("response_format", b"srt")))
    line, headers, body = asked.upstream.requests[0]
    assert (line, headers["content-type"]) == ("POST /v1/audio/transcriptions HTTP/1.1", kind)
    assert body == form(("language", b"en"), ("model", b"whisper-of-theirs"), ("response_format", b"srt"))
    call.whole(b"1\n00:00 --> 00:01\nHi\n", content_type="text/plain; charset=utf-8")
    assert (await asked.run.ended())[0] == "completed"
    assert raws(asked) == b"1\n00:00 --> 00:01\nHi\n"
    assert response(asked)["content_type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize(("kind", "body"), [
    ("multipart/form-data", form(("model", b"a"))), ("multipart/form-data; boundary=other", form(("model", b"a"))),
    ("multipart/form-data; boundary=xX--", form(("language", b"en"))),
    ("multipart/form-data; boundary=xX--", form(("model", b"a"))[:-20])])
@pytest_twisted.ensureDeferred
async def test_a_form_that_cannot_be_read_is_refused_before_the_backend(upstream: Upstream, kind: str, body: bytes) -> None:
    run = Started(openai.factory, Tools(Clock()), target("m", url=upstream.url), body=body, api="audio/translations",
                  content_type=kind)
    assert (await run.ended())[1].code == "invalid_request"
    assert not upstream.connections


@pytest_twisted.ensureDeferred
async def test_events_of_an_api_that_only_passes_keep_every_byte(asked: Asked) -> None:
    call = await asked.ask(body=b'{"model":"a","prompt":"x","stream":true}', api="images/generations")
    stream = b'event: image_generation.partial_image\r\ndata: {"type":"x"}\r\n\r\n: ping\n\ndata: [DONE]\n\n'
    call.stream_head()
    call.chunk(stream[:20])
    call.chunk(stream[20:])
    call.send(b"0\r\n\r\n")
    assert (await asked.run.ended())[0] == "completed"
    assert raws(asked) == stream


@pytest.mark.parametrize(("api", "name", "text", "tokens"), [
    ("responses", "llama-server-2026.10.11549/responses-stream.http", None, 23),
    ("messages", "llama-server-2026.10.11549/messages-stream.http", None, None)])
@pytest_twisted.ensureDeferred
async def test_a_captured_native_stream_passes_event_for_event(
        asked: Asked, api: str, name: str, text: str | None, tokens: int | None) -> None:
    call = await asked.ask(body=json.dumps(BODIES[api]).encode(), api=api)
    assert json.loads(asked.upstream.requests[0][2]) == BODIES[api] | {"model": "m"}
    call.stream_head()
    data = captured(name)
    for start in range(0, len(data), 7):
        call.chunk(data[start:start + 7])
    call.send(b"0\r\n\r\n")
    kind, outcome = await asked.run.ended()
    assert kind == "completed" and outcome.usage.total_tokens and tokens in (None, outcome.usage.total_tokens)
    payloads = [line[6:] for line in data.splitlines() if line.startswith(b"data: ") and line != b"data: [DONE]"]
    assert [event.raw for event in asked.run.sink.events if event.raw] == payloads
    assert response(asked) == {"status": 200, "content_type": "text/event-stream"}, "no `api`: it is the client's own"


@pytest_twisted.ensureDeferred
async def test_what_the_client_says_to_the_backend_travels_and_its_keys_do_not(asked: Asked) -> None:
    headers = {"anthropic-beta": "x-1", "authorization": "Bearer iop", "x-api-key": "iop", "host": "evil",
               "x-bad": "a\r\nb: c"}
    call = await asked.ask(settings={"headers": {"X-Team": "blue"}}, api="messages", headers=headers, query="beta=true",
                           body=json.dumps(MESSAGES).encode())
    line, sent, _ = asked.upstream.requests[0]
    assert line == "POST /v1/messages?beta=true HTTP/1.1"
    assert (sent["anthropic-beta"], sent["anthropic-version"], sent["x-team"]) == ("x-1", "2023-06-01", "blue")
    assert not {"authorization", "x-api-key", "x-bad"} & sent.keys() and sent["host"] != "evil"
    call.whole(b"{}", "400 Bad")
    await asked.fails(status=400)
