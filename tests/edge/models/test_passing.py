"""Embeddings, rerankings, audio and images: their bodies and replies pass as they came."""

import json

import pytest

from iop import events
from iop.errors import UpstreamError
from iop.testing.edge import script
from tests.edge.models.conftest import completed, played, started

FORM_TYPE = "multipart/form-data; boundary=XX"


def form(**fields):
    parts = [f'--XX\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items()]
    sound = b'--XX\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n\x00\xff\r\n--\x01\r\n'
    return "".join(parts).encode() + sound + b"--XX--\r\n"


def piece(data):
    return events.output("", raw=data)


@pytest.mark.parametrize("api", ["embeddings", "rerank", "images/generations"])
def test_a_json_body_and_its_reply_pass_as_they_came(world, api):
    world.edge.scripts["tiny"] = played(started(content_type="application/json; x=1"), piece(b'{"data" :[1.50]}\n'))
    body = b'{ "model":"tiny", "input": "x","query":"q", "prompt":"p", "odd":1.50 }'
    wire = world.asking("/v1/" + api, body)
    head, _, rest = wire.received.partition(b"\r\n\r\n")
    assert b"content-type: application/json; x=1" in head.lower()
    assert (rest if api != "images/generations" else wire.streamed()) == b'{"data" :[1.50]}\n'
    assert (world.edge.last.request.api, world.edge.last.request.body) == (api, body)
    assert world.edge.last.request.content_type == ""


@pytest.mark.parametrize("api", ["audio/transcriptions", "audio/translations", "images/edits"])
def test_a_forms_model_is_read_and_the_form_travels_whole(world, api):
    world.edge.scripts["tiny"] = played(started(content_type="text/plain"), piece(b"hello\n"))
    body = form(model="small", response_format="text")
    answer = world.call("POST", "/v1/" + api, body, content_type=FORM_TYPE)
    assert (answer.status, answer.body, answer.headers["content-type"]) == (200, b"hello\n", "text/plain")
    request = world.edge.last.request
    assert (request.api, request.body, request.content_type, request.target) == (api, body, FORM_TYPE, "tiny")


def test_speech_arrives_as_it_is_made(world):
    wire = world.asking("/v1/audio/speech", {"model": "tiny", "input": "hi", "voice": "x"})
    run = world.edge.last
    run.emit(started(content_type="audio/mpeg"))
    assert not wire.received
    run.emit(piece(b"\xff\xfb"))
    assert b"content-type: audio/mpeg" in wire.received.lower()
    assert wire.streamed() == b"\xff\xfb"
    run.emit(piece(b"\x00\x01"))
    assert wire.streamed() == b"\x00\x01"
    run.end("completed")
    assert wire.received == b"0\r\n\r\n"


def test_no_heartbeat_stands_among_bytes(world):
    wire = world.asking("/v1/audio/speech", {"model": "tiny"})
    for _ in range(40):
        world.clock.advance(1)
        world.site.sweep()
    assert not wire.received
    run = world.edge.last
    run.emit(started(content_type="audio/mpeg"), piece(b"a"))
    wire.streamed()
    for _ in range(40):
        world.clock.advance(1)
        world.site.sweep()
    assert not wire.received


def test_bytes_that_end_too_soon_break_the_connection(world):
    wire = world.asking("/v1/audio/speech", {"model": "tiny"})
    run = world.edge.last
    run.emit(started(content_type="audio/mpeg"), piece(b"a"))
    assert wire.streamed() == b"a"
    run.end("failed", events.outcome_of(UpstreamError("The stream was cut.")))
    assert (wire.received, wire.transport.aborted) == (b"", True)


def test_a_form_may_ask_for_a_stream(world):
    wire = world.asking("/v1/audio/transcriptions", form(model="tiny", stream="true"), content_type=FORM_TYPE)
    world.edge.last.emit(started(content_type="text/event-stream"), piece(b'data: {"type":"transcript.text.delta"}\n\n'))
    assert wire.streamed() == b'data: {"type":"transcript.text.delta"}\n\n'


@pytest.mark.parametrize("body", [b"", b"{}", form(), form(model=""), form(model="x" * 5000), b"--XX"])
def test_a_bad_form_is_an_invalid_request(world, body):
    answer = world.call("POST", "/v1/audio/transcriptions", body, content_type=FORM_TYPE)
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert world.call("POST", "/v1/audio/transcriptions", body, content_type="application/json").status == 400


@pytest.mark.parametrize("api", ["embeddings", "audio/speech", "images/generations"])
def test_a_program_and_a_backend_without_it_are_bad_requests(world, api):
    assert world.call("POST", "/v1/" + api, {"model": "echo"}).status == 400
    assert not world.edge.runs_by_id
    world.edge.scripts["tiny"] = script(events.output("only text"))
    answer = world.call("POST", "/v1/" + api, {"model": "tiny"})
    assert (answer.status, api in answer.json["error"]["message"]) == (400, True)


def test_a_refusal_of_the_backend_passes_with_its_status(world):
    own = {"message": "does not support Embeddings API", "type": "BadRequestError", "code": 400}
    world.edge.scripts["tiny"] = lambda run: run.end("failed", events.outcome_of(
        UpstreamError("The backend answered 400.", status=400, body=json.dumps({"error": own}).encode())))
    answer = world.call("POST", "/v1/embeddings", {"model": "tiny", "input": "a"})
    assert (answer.status, answer.json["error"]["message"], answer.code) == (400, own["message"], "BadRequestError")


def test_usage_does_not_stand_in_the_reply(world):
    usage = events.output("", raw=b"{}")
    usage.usage.prompt_tokens = 3
    world.edge.scripts["tiny"] = played(started(), piece(b'{"data":[]}'), usage, outcome=completed(prompt_tokens=3))
    assert world.call("POST", "/v1/embeddings", {"model": "tiny"}).body == b'{"data":[]}'
