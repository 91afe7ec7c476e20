"""Ids of runs and events, and events as JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iop import errors, events, runs
from iop.errors import InvalidRequest
from iop.link import errors as link_errors
from iop.proto import run_pb2
from iop.runs import EventId


def test_run_ids_sort_by_time_and_do_not_repeat():
    ids = [runs.new_run_id(1000.0 + step) for step in range(100)]
    assert ids == sorted(ids)
    assert len({runs.new_run_id(5.0) for _ in range(1000)}) == 1000
    assert all(runs.is_run_id(run_id) and run_id[12] == "7" and run_id[16] in "89ab" for run_id in ids)


@given(st.integers(0, 10**9 - 1), st.integers(0, 10**18 - 1))
def test_an_event_id_survives_its_text(attempt, seq):
    assert EventId.parse(str(EventId(attempt, seq))) == EventId(attempt, seq)


@pytest.mark.parametrize("text", ["1", "1.", ".1", "1.1.1", "-1.2", "a.b", "1.1\n", "١.١", "1" * 30 + ".1"])
def test_what_is_not_an_event_id_is_refused(text):
    with pytest.raises(InvalidRequest):
        EventId.parse(text)


def test_event_ids_are_ordered_by_attempt_then_number():
    assert runs.START < EventId(1, 1) < EventId(1, 12) < EventId(2, 1)


def test_every_kind_of_event_has_a_json_shape():
    for field in run_pb2.RuntimeEvent.DESCRIPTOR.oneofs_by_name["kind"].fields:
        event = run_pb2.RuntimeEvent(at_us=1)
        if field.message_type is None:
            setattr(event, field.name, "text")
        else:
            getattr(event, field.name).SetInParent()
        shown = json.loads(events.json_encode(events.as_dict(2, 7, event)))
        assert (shown["id"], shown["attempt"], shown["seq"]) == ("2.7", 2, 7)
        assert shown["type"] != "unrecognised"


def test_an_event_of_a_later_version_is_shown_as_unrecognised():
    future = run_pb2.RuntimeEvent.FromString(run_pb2.RuntimeEvent(at_us=5).SerializeToString() + b"\xfa\x06\x01x")
    assert events.as_dict(1, 1, future)["type"] == "unrecognised"


def test_bytes_that_text_replaced_are_shown_exactly():
    shown = events.as_dict(1, 1, events.output("\ufffd", events.CHANNEL_STDOUT, exact=b"\xff"))
    assert (shown["channel"], shown["text"], shown["bytes_b64"]) == ("stdout", "\ufffd", "/w==")


def test_every_error_has_a_code_of_its_own_and_a_sentence():
    classes = {cls for module in (errors, link_errors) for cls in vars(module).values()
               if isinstance(cls, type) and issubclass(cls, errors.IOPError)}
    codes = [cls.code for cls in classes]
    assert len(set(codes)) == len(codes)
    for cls in classes:
        assert cls().message.split(".")[0] and "code" in cls().as_dict()


def test_the_ending_of_a_batch_is_its_last_event():
    batch = run_pb2.EventBatch(run_id="r", attempt=1, first_seq=1)
    assert events.ending_of(batch) is None
    batch.events.add().CopyFrom(events.output("x"))
    assert events.ending_of(batch) is None
    batch.events.add().CopyFrom(events.failed(errors.RunTimeout()))
    kind, outcome = events.ending_of(batch)
    assert (kind, outcome.code) == ("failed", "run_timeout")


def test_times_are_utc_with_microseconds():
    assert events.rfc3339(1_796_118_641_000_001) == "2026-12-01T09:50:41.000001Z"
    assert events.rfc3339(0) is None
