"""Batches made one, and what is not made one."""

from __future__ import annotations

import pytest

from iop.edge.packing import MAX_EVENTS, MERGED_BYTES, Sheaf, joined, pack, unpack
from iop.events import ending, output
from iop.proto.run_pb2 import EventBatch, Outcome, RuntimeEvent

RUN = "0" * 32


def batch(first_seq: int, *events: RuntimeEvent, attempt: int = 1) -> EventBatch:
    return EventBatch(run_id=RUN, attempt=attempt, first_seq=first_seq, events=events)


def test_batches_joined_without_decoding_read_as_one_batch() -> None:
    parts = [batch(5, output("a", raw=b"1"), output("b")), batch(7, output("c")), batch(8, ending("completed", Outcome()))]
    whole = unpack(joined([pack(part) for part in parts], 5))
    assert whole == batch(5, *[event for part in parts for event in part.events])


def test_one_batch_is_joined_to_the_very_same_bytes() -> None:
    packed = pack(batch(5, output("a")))
    assert joined([packed], 5) is packed


def test_joined_batches_can_be_joined_again() -> None:
    one = joined([pack(batch(1, output("a"))), pack(batch(2, output("b")))], 1)
    other = joined([pack(batch(3, output("c"))), pack(batch(4, output("d")))], 3)
    whole = unpack(joined([one, other], 1))
    assert (whole.run_id, whole.attempt, whole.first_seq) == (RUN, 1, 1)
    assert [event.output for event in whole.events] == ["a", "b", "c", "d"]


def sheaf_of(first: EventBatch) -> Sheaf:
    return Sheaf(first, pack(first))


def test_a_sheaf_takes_what_follows() -> None:
    sheaf, two = sheaf_of(batch(1, output("a"))), batch(2, output("b"), output("c"))
    assert sheaf.add(two, pack(two))
    whole, packed = sheaf.whole()
    assert whole == unpack(packed) == batch(1, *sheaf.batch.events, *two.events)


@pytest.mark.parametrize("other", [
    batch(3, output("a hole")), batch(1, output("again")), batch(2, output("x"), attempt=2), batch(2),
    batch(2, output("x" * MERGED_BYTES)), batch(2, *[output("x")] * MAX_EVENTS)])
def test_a_sheaf_takes_nothing_else(other: EventBatch) -> None:
    sheaf = sheaf_of(batch(1, output("a")))
    assert not sheaf.add(other, pack(other))
    assert sheaf.whole() == (sheaf.batch, pack(sheaf.batch))


def test_a_sheaf_that_begins_with_nothing_hides_nothing() -> None:
    sheaf, one = sheaf_of(batch(1)), batch(1, output("a"))
    assert not sheaf.add(one, pack(one)), "an empty batch is a fault, which the log tells"
