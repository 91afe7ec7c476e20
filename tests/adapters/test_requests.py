"""A model API's body travels whole: nothing of it changes but the model's name and the wish for a stream."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iop.adapters.wire.passed_headers import passed_headers
from iop.adapters.wire.refusals import RETRYABLE, error_text, lacks_api, refuses_to_stream
from iop.adapters.wire.requests import CHATS, JOINED, passed_on, passed_query, request_of
from iop.errors import InvalidRequest
from iop.proto.run_pb2 import RunRequest

numbers = st.integers(-10**20, 10**20) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(st.none() | st.booleans() | numbers | st.text(max_size=9), lambda inner: st.lists(inner, max_size=3)
                      | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=9)
OURS = ("model", "stream", "stream_options", "previous_response_id", "background")
bodies = st.dictionaries(st.text(max_size=9).filter(lambda name: name not in OURS), values, max_size=6)


@given(bodies, st.booleans(), st.sampled_from(["embeddings", "rerank", "images/generations", "audio/speech"]))
def test_only_the_model_is_replaced(body: dict[str, Any], ascii_only: bool, api: str) -> None:
    sent = passed_on(api, json.dumps(body | {"model": "alias"}, ensure_ascii=ascii_only).encode(), "theirs")
    assert json.loads(sent.body) == body | {"model": "theirs"}
    assert not sent.streams and not sent.plain


@given(bodies, st.sampled_from(sorted(JOINED)), st.sampled_from([None, True, False]))
def test_a_chat_is_asked_to_stream_besides(body: dict[str, Any], api: str, stream: bool | None) -> None:
    told = body | ({} if stream is None else {"stream": stream})
    sent = passed_on(api, json.dumps(told).encode(), "theirs")
    usage = {"stream_options": {"include_usage": True}} if api in CHATS else {}
    assert json.loads(sent.body) == told | {"model": "theirs", "stream": True} | usage
    assert sent.streams is (stream is True)
    assert not sent.plain if stream else json.loads(sent.plain) == told | {"model": "theirs"}


def test_values_keep_their_very_bytes() -> None:
    body = rb'{"model":"a","x":[1.50, 1e2 ,"\u00e9\ud83d\ude00",12345678901234567890123],"y" : {"b":1,  "a":2}}'
    assert passed_on("embeddings", body, "m").body == (
        rb'{"model":"m","x":[1.50, 1e2 ,"\u00e9\ud83d\ude00",12345678901234567890123],"y":{"b":1,  "a":2}}')


@given(st.binary(max_size=300), st.binary(max_size=40).map(lambda name: name.hex() or "m"), st.booleans())
def test_a_forms_file_is_untouched_whatever_it_holds(file: bytes, model: str, first: bool) -> None:
    mark = "xYz"
    named = b'--xYz\r\nContent-Disposition: form-data; name="model"\r\n\r\n%s\r\n'
    data = b'--xYz\r\nContent-Disposition: form-data; name="file"; filename="m"\r\n\r\n' + file + b"\r\n"
    if b"--xYz" in file:
        return
    parts = [named % b"alias", data] if first else [data, named % b"alias"]
    sent = passed_on("audio/transcriptions", b"".join(parts) + b"--xYz--\r\n", model, f"multipart/form-data; boundary={mark}")
    wanted = [named % model.encode(), data] if first else [data, named % model.encode()]
    assert sent.body == b"".join(wanted) + b"--xYz--\r\n"


@pytest.mark.parametrize("api", ["../admin", "chat/../x", "", "a//b", "a b", "chat/completions?x=1", "é", "a\n"])
def test_a_path_stays_below_the_backends_api(api: str) -> None:
    if api == "":
        assert request_of(RunRequest(body=b"{}", api=""), "m").api == "chat/completions"
        return
    with pytest.raises(InvalidRequest):
        passed_on(api, b"{}", "m")


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"x"', b"[" * 100_000, b'{"a":' * 100_000])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        passed_on("embeddings", body, "m")


@pytest.mark.parametrize("messages", [b"", b"{}", b"7", b"["])
def test_messages_are_a_list(messages: bytes) -> None:
    with pytest.raises(InvalidRequest):
        request_of(RunRequest(messages=messages), "m")
    with pytest.raises(InvalidRequest):
        request_of(RunRequest(), "m")


def test_headers_that_are_the_nodes_business_do_not_travel() -> None:
    told = {"anthropic-beta": "b", "Authorization": "x", "cookie": "x", "x-api-key": "x", "x-y": "a\nb", "x-z": "é",
            "x\r\ny": "z", "x: y": "z", "": "z"}
    assert passed_headers(RunRequest(headers=told)) == {"anthropic-beta": "b"}


@pytest.mark.parametrize(("query", "told"), [("", ""), ("beta=true&x=%20", "?beta=true&x=%20"), ("a b", None),
                                             ("a\r\nHost: x", None), ("a#b", None), ("é", None), ("a" * 3000, None)])
def test_a_query_stays_a_query(query: str, told: str | None) -> None:
    if told is not None:
        assert passed_query(RunRequest(query=query)) == told
        return
    with pytest.raises(InvalidRequest):
        passed_query(RunRequest(query=query))


@pytest.mark.parametrize(("body", "sentence"), [
    (b'{"error":{"message":"m","type":"t"}}', "m"), (b'{"error":"m"}', "m"), (b'{"message":"m"}', "m"),
    (b'{"detail":"m"}', "m"),
    (b'{"type":"error","error":{"type":"t","message":"m"}}', "m"), (b"plain words", "plain words"), (b"", ""), (b"[]", ""),
    (b'{"error":{}}', ""), (b'{"error":{"message":"\\ud83d"}}', "?")])
def test_the_sentence_of_an_error_is_found(body: bytes, sentence: str) -> None:
    assert error_text(body) == sentence or (sentence == "?" and error_text(body))


@pytest.mark.parametrize(("status", "body", "streams", "lacks", "again"), [
    (400, b"stream_options", True, False, False), (422, b"stream", True, False, False),
    (400, b"temperature", False, False, False),
    (404, b"stream", False, True, False), (405, b"", False, True, False), (501, b"", False, True, False),
    (500, b"stream", False, False, True), (503, b"", False, False, True), (429, b"", False, False, True),
    (529, b"", False, False, True), (401, b"", False, False, False)])
def test_what_a_refusal_means(status: int, body: bytes, streams: bool, lacks: bool, again: bool) -> None:
    assert (refuses_to_stream(status, body), lacks_api(status), status in RETRYABLE) == (streams, lacks, again)
