"""Events that nobody has any more: what stands in their place. Pure.

A gap is one event under the number of the last one that is missing; it names the first. In a batch it stands only in front.
"""

from __future__ import annotations

from iop.events import now_us
from iop.proto.run_pb2 import EventBatch, Gap, RuntimeEvent
from iop.runs import EventId


def gap_batch(run_id: str, last: EventId, first_seq: int, reason: str) -> EventBatch:
    """The events from `first_seq` to `last` are missing."""
    event = RuntimeEvent(at_us=now_us(), gap=Gap(first_seq=first_seq, reason=reason))
    return EventBatch(run_id=run_id, attempt=last.attempt, first_seq=last.seq, events=[event])


def covers_from(batch: EventBatch) -> int:
    """The first number that a batch tells something of."""
    first = batch.events[0]
    return first.gap.first_seq if first.HasField("gap") else batch.first_seq


def narrowed(batch: EventBatch, place: EventId) -> EventBatch:
    """For a reader at `place` in the same attempt, which has seen some of what is lost now: the gap begins behind that."""
    if covers_from(batch) > place.seq or not batch.events[0].HasField("gap"):
        return batch
    told = EventBatch()
    told.CopyFrom(batch)
    told.events[0].gap.first_seq = place.seq + 1
    return told


def unannounced(batch: EventBatch, place: EventId) -> int:
    """The first number that is missing between `place` and a batch behind it, when the batch does not tell so; else 0."""
    expected = place.seq + 1 if batch.attempt == place.attempt else 1
    return expected if batch.attempt >= place.attempt and covers_from(batch) > expected else 0
