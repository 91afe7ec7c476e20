"""Each model API at an OpenAI-compatible backend: whole where it has the API, told in another where it has not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.task import Clock

from iop.adapters import openai, vllm
from iop.adapters.wire.lacking import DAY_S, Lacking
from iop.errors import ConfigError, InvalidRequest
from tests.adapters.asking import Asked
from tests.adapters.kit import Sink, Started, Tools, target, until
from tests.adapters.upstream import Call, Upstream, delta

CAPTURES = Path(__file__).parent / "captures"
RESPONSES = {"model": "alias", "input": "hi", "stream": True}
MESSAGES = {"model": "alias", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "stream": True}
BODIES: dict[str, dict[str, Any]] = {
    "responses": RESPONSES, "messages": MESSAGES, "completions": {"model": "alias", "prompt": "hi", "stream": True}}


def response(asked: Asked) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(asked.run.sink.events[0].started.response)
    return found


def raws(asked: Asked) -> bytes:
    return b"".join(event.raw for event in asked.run.sink.events)


def captured(name: str) -> bytes:
    return (CAPTURES / name).read_bytes().split(b"\r\n\r\n", 1)[1]


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


# --- told in another API ---


async def told_as_a_chat(asked: Asked, call: Call) -> None:
    assert asked.upstream.requests[-1][0] == "POST /v1/chat/completions HTTP/1.1"
    call.stream_head()
    call.words("Hel", "lo")
    call.end()
    kind, outcome = await asked.run.ended()
    assert (kind, outcome.usage.total_tokens) == ("completed", 5), outcome
    assert asked.run.sink.text() == "Hello" and response(asked)["api"] == "chat/completions"
    assert raws(asked).startswith(json.dumps(delta("Hel")).encode())


@pytest.mark.parametrize("status", ["404 Not Found", "405 Method Not Allowed", "501 Not Implemented"])
@pytest.mark.parametrize("api", ["responses", "messages", "completions"])
@pytest_twisted.ensureDeferred
async def test_an_api_that_the_backend_lacks_is_told_as_a_chat_from_then_on(asked: Asked, api: str, status: str) -> None:
    call = await asked.ask(body=json.dumps(BODIES[api]).encode(), api=api)
    assert asked.upstream.requests[0][0] == f"POST /v1/{api} HTTP/1.1"
    call.whole(b'{"detail":"Not Found"}', status)
    await until(lambda: len(asked.upstream.calls) == 2)
    body = json.loads(asked.upstream.requests[1][2])
    assert body["model"] == "m" and body["stream"] is True and body["stream_options"] == {"include_usage": True}
    assert [(message["role"], message["content"]) for message in body["messages"]] == [("user", "hi")]
    await told_as_a_chat(asked, asked.upstream.calls[1])
    again = asked.run.adapter.execute(asked.run.execution._spec, Sink())
    await until(lambda: len(asked.upstream.calls) == 3)
    assert asked.upstream.requests[2][0] == "POST /v1/chat/completions HTTP/1.1"
    asked.upstream.calls[2].whole(b"{}", "400 Bad")
    await until(lambda: again._told)


@pytest_twisted.ensureDeferred
async def test_a_whole_answer_is_told_whole_in_the_other_api(asked: Asked) -> None:
    call = await asked.ask(body=json.dumps(MESSAGES | {"stream": False}).encode(), api="messages")
    call.whole(b"", "404 Not Found")
    await until(lambda: len(asked.upstream.calls) == 2)
    call = asked.upstream.calls[1]
    call.stream_head()
    call.words("Hello")
    call.end()
    assert (await asked.run.ended())[0] == "completed"
    assert asked.run.sink.kinds == ["started", "output"] and json.loads(raws(asked))["object"] == "chat.completion"
    assert response(asked)["api"] == "chat/completions"


@pytest_twisted.ensureDeferred
async def test_a_model_that_is_nowhere_is_no_lack_of_an_api(asked: Asked) -> None:
    call = await asked.ask(body=json.dumps(RESPONSES).encode(), api="responses")
    call.whole(b'{"error":{"message":"The model `m` does not exist."}}', "404 Not Found")
    await until(lambda: len(asked.upstream.calls) == 2)
    asked.upstream.calls[1].whole(b'{"error":{"message":"The model `m` does not exist."}}', "404 Not Found")
    await asked.fails("does not exist", status=404)
    asked.run.adapter.execute(asked.run.execution._spec, Sink())
    await until(lambda: len(asked.upstream.calls) == 3)
    assert asked.upstream.requests[2][0] == "POST /v1/responses HTTP/1.1"
    asked.upstream.calls[2].whole(b"{}", "400 Bad")
    await until(lambda: not asked.clock.getDelayedCalls())


@pytest_twisted.ensureDeferred
async def test_what_cannot_be_told_is_a_refusal_of_the_run(asked: Asked) -> None:
    call = await asked.ask(body=b'{"model":"a","prompt":[1,2,3]}', api="completions")
    call.whole(b"", "404 Not Found")
    kind, outcome = await asked.run.ended()
    assert (kind, outcome.code) == ("failed", "invalid_request") and "one text" in outcome.message


@pytest_twisted.ensureDeferred
async def test_apis_says_what_is_not_even_tried(asked: Asked) -> None:
    tool = {"type": "web_search"}
    call = await asked.ask(settings={"apis": ["chat/completions"]}, api="responses",
                           body=json.dumps(RESPONSES | {"tools": [tool]}).encode())
    await told_as_a_chat(asked, call)
    warnings = [event.status for event in asked.run.sink.events if event.WhichOneof("kind") == "status"]
    assert [status.word for status in warnings] == ["warning"] and "web_search" in warnings[0].detail
    assert asked.run.sink.kinds[:2] == ["started", "status"]
    assert len(asked.upstream.requests) == 1


@pytest.mark.parametrize(("api", "body"), [
    ("responses", RESPONSES | {"tools": [{"type": "custom", "name": "p"}]}),
    ("messages", MESSAGES | {"tools": [{"type": "web_search_20250305", "name": "web_search"}]})])
@pytest_twisted.ensureDeferred
async def test_what_most_backends_would_not_understand_whole_is_told_as_a_chat(
        asked: Asked, api: str, body: dict[str, Any]) -> None:
    call = await asked.ask(api=api, body=json.dumps(body).encode())
    await told_as_a_chat(asked, call)


NO_ROOM = [
    "max_tokens=32000 cannot be greater than max_model_len=16384. Please request fewer output tokens.",
    "This model's maximum context length is 32768 tokens. However, you requested 32000 output tokens and your prompt "
    "contains at least 769 input tokens, for a total of at least 32769 tokens.",
    "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is 32768 tokens and "
    "your request has 1200 input tokens.",
    "Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a total of 33000 "
    "tokens: 1000 tokens from the input messages and 32000 tokens for the completion."]


@pytest.mark.parametrize("refusal", NO_ROOM)
@pytest_twisted.ensureDeferred
async def test_an_answer_may_have_what_room_there_is(asked: Asked, refusal: str) -> None:
    call = await asked.ask(settings={"apis": ["chat/completions"]}, api="messages",
                           body=json.dumps(MESSAGES | {"max_tokens": 32_000}).encode())
    assert json.loads(asked.upstream.requests[0][2])["max_tokens"] == 32_000
    call.whole(json.dumps({"error": {"message": refusal, "code": 400}}).encode(), "400 Bad Request")
    await until(lambda: len(asked.upstream.calls) == 2)
    assert "max_tokens" not in json.loads(asked.upstream.requests[1][2])
    await told_as_a_chat(asked, asked.upstream.calls[1])
    assert "`max_tokens` was left out" in asked.run.sink.events[1].status.detail


@pytest.mark.parametrize(("refusal", "asked_for"), [
    ("This model's maximum context length is 4096 tokens. However, you requested 0 output tokens and your prompt contains "
     "at least 4097 input tokens", {"max_tokens": 9}), (NO_ROOM[0], {"max_tokens": None})])
@pytest_twisted.ensureDeferred
async def test_a_prompt_without_room_is_refused_once(asked: Asked, refusal: str, asked_for: dict[str, Any]) -> None:
    call = await asked.ask(settings={"apis": ["chat/completions"]}, api="messages",
                           body=json.dumps(MESSAGES | asked_for).encode())
    call.whole(json.dumps({"error": {"message": refusal, "code": 400}}).encode(), "400 Bad Request")
    await asked.fails(refusal[:40], status=400)
    assert len(asked.upstream.requests) == 1


@pytest_twisted.ensureDeferred
async def test_who_says_that_a_backend_has_responses_is_believed(asked: Asked) -> None:
    call = await asked.ask(settings={"apis": ["responses"]}, api="responses",
                           body=json.dumps(RESPONSES | {"tools": [{"type": "custom", "name": "p"}]}).encode())
    assert asked.upstream.requests[0][0] == "POST /v1/responses HTTP/1.1"
    call.whole(b"{}", "400 Bad")
    await asked.fails(status=400)


@pytest_twisted.ensureDeferred
async def test_an_api_that_the_backend_lacks_and_that_cannot_be_told_is_a_404(upstream: Upstream) -> None:
    run = Started(openai.factory, Tools(Clock()), target("m", url=upstream.url, apis=["chat/completions"]),
                  body=b'{"input":"x"}', api="embeddings")
    outcome = (await run.ended())[1]
    assert (outcome.code, outcome.upstream_status, outcome.retryable) == ("upstream_error", 404, False)
    assert not upstream.connections


def test_apis_names_apis() -> None:
    for factory in (openai.factory, vllm.factory):
        with pytest.raises(ConfigError) as caught:
            factory.settings(target("m", url="http://h/v1", apis=["chat/completions", "chats"]))
        assert "chats" in caught.value.message and "chat/completions" in caught.value.message


def test_a_lack_is_forgotten_after_a_day() -> None:
    clock = Clock()
    lacking = Lacking(clock)
    lacking.found("m", "responses")
    assert lacking.lacks("m", "responses") and not lacking.lacks("m", "messages") and not lacking.lacks("n", "responses")
    clock.advance(DAY_S + 1)
    assert not lacking.lacks("m", "responses")


# --- Ollama's API over such a backend ---


@pytest_twisted.ensureDeferred
async def test_ollamas_chat_is_told_as_openais(asked: Asked) -> None:
    body = {"model": "alias", "messages": [{"role": "user", "content": "hi", "images": ["iVBORw0="]}], "think": False,
            "options": {"num_predict": 5, "num_ctx": 4096}, "keep_alive": "5m"}
    call = await asked.ask(body=json.dumps(body).encode(), api="api/chat")
    sent = json.loads(asked.upstream.requests[0][2])
    assert sent == {
        "model": "m", "messages": [{"role": "user", "content": [
            {"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0="}}]}],
        "max_tokens": 5, "stream": True, "chat_template_kwargs": {"enable_thinking": False},
        "stream_options": {"include_usage": True}}
    await told_as_a_chat(asked, call)
    warnings = [event.status.detail for event in asked.run.sink.events if event.WhichOneof("kind") == "status"]
    assert ["num_ctx" in warning for warning in warnings] == [True, False] and "keep_alive" in warnings[1]


@pytest_twisted.ensureDeferred
async def test_ollamas_embed_is_told_as_embeddings(asked: Asked) -> None:
    call = await asked.ask(body=b'{"model":"a","input":["x","y"],"dimensions":3}', api="api/embed")
    line, _, body = asked.upstream.requests[0]
    assert line == "POST /v1/embeddings HTTP/1.1"
    assert json.loads(body) == {"model": "m", "input": ["x", "y"], "encoding_format": "float", "dimensions": 3}
    call.whole(b'{"object":"list","data":[{"embedding":[1.0]}]}')
    assert (await asked.run.ended())[0] == "completed"
    assert response(asked)["api"] == "embeddings"


@pytest_twisted.ensureDeferred
async def test_ollamas_raw_generate_is_told_as_completions(asked: Asked) -> None:
    call = await asked.ask(body=b'{"model":"a","prompt":"x","raw":true,"stream":false}', api="api/generate")
    assert asked.upstream.requests[0][0] == "POST /v1/completions HTTP/1.1"
    call.stream_head()
    call.event({"object": "text_completion", "choices": [{"index": 0, "text": "y", "finish_reason": "stop"}]})
    call.event(b"[DONE]")
    call.send(b"0\r\n\r\n")
    assert (await asked.run.ended())[0] == "completed"
    assert response(asked)["api"] == "completions" and asked.run.sink.text() == "y"


@pytest.mark.parametrize("api", ["api/chat", "api/generate", "api/embed"])
@pytest.mark.parametrize("body", [{}, {"messages": [], "prompt": "", "input": 5},
                                  {"messages": [1], "prompt": 1, "input": [1]}])
@pytest_twisted.ensureDeferred
async def test_what_is_no_request_of_ollamas_is_refused(upstream: Upstream, api: str, body: dict[str, Any]) -> None:
    run = Started(openai.factory, Tools(Clock()), target("m", url=upstream.url), body=json.dumps(body).encode(), api=api)
    assert (await run.ended())[1].code == InvalidRequest.code
    assert not upstream.connections
