"""Backends that speak the Responses API themselves: what passes, and what is made ours."""

import json

import pytest

from iop import events
from iop.errors import UpstreamError
from tests.edge.models.responded import (
    OWN,
    RUN,
    completed,
    failed,
    kinds,
    native,
    parsed,
    started,
    stream,
    whole,
)


def test_native_events_pass_but_for_the_responses_id():
    batches = (started(None), [native("created", 0, response={"id": "resp_backend"}),
                               native("output_text.delta", 1, delta="é")],
               native("completed", 2, response=OWN), completed())
    body = stream(*batches)
    assert [(event["type"], event["sequence_number"]) for event in parsed(body)] == [
        ("response.created", 0), ("response.output_text.delta", 1), ("response.completed", 2)]
    assert b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","sequence_number":1,' in body
    assert parsed(body)[2]["response"] == OWN | {"id": f"resp_{RUN}"} and b"resp_backend" not in body
    assert whole(*batches) == OWN | {"id": f"resp_{RUN}"}
    assert kinds(parsed(stream(*batches, after=1))) == ["completed"]


def test_native_events_without_numbers_get_them():
    batches = (started(None), native("created", response={"id": "b"}), native("completed", response=OWN), completed())
    assert [event["sequence_number"] for event in parsed(stream(*batches))] == [0, 1]
    assert kinds(parsed(stream(*batches, after=0))) == ["completed"]


@pytest.mark.parametrize("raw", [b"[1]", b'"x"', b'{"type":1}', b'{"type":"a\\nb"}', b'{"response":3}', b"{", b"\xff",
                                 b'{"x":' + b"[" * 100_000,
                                 b'{"type":"response.completed","response":null}'])
def test_odd_native_events_pass_and_break_nothing(raw):
    body = stream(started(None), events.output("", raw=raw), native("completed", 9, response=OWN), completed())
    assert b"data: " in body and body.count(b"\n\n") == 2 and body.endswith(b"}\n\n")


def test_a_native_stream_that_breaks_ends_as_failed():
    batches = (started(None), native("created", 0, response={"id": "b"}), native("output_text.delta", 1, delta="a"),
               failed(UpstreamError("The connection broke.")))
    told = parsed(stream(*batches))
    assert kinds(told) == ["created", "output_text.delta", "failed"] and told[-1]["sequence_number"] == 2
    assert told[-1]["response"]["error"]["message"] == "The connection broke."
    assert whole(*batches)["status"] == "failed"


def test_a_native_answer_in_one_piece_passes():
    body = whole(started(None), events.output("", raw=json.dumps(OWN).encode()), completed())
    assert body == OWN | {"id": f"resp_{RUN}"}
