"""The numbers of one attempt: its events counted and packed, its output weighed and chained, and how that is gone on with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256

from iop import events
from iop.node.box import Kept
from iop.proto.run_pb2 import EventBatch, Outcome, RuntimeEvent, Totals, Truncated
from iop.proto.spool_pb2 import SpoolEntry

BATCH_EVENTS = 1000         # the link's cap
LIGHT_EVENTS = 900          # as many are one batch without a look at their sizes, if they are small
EVENT_BYTES = 32 * 1024 * 1024  # of one output; what the link carries, with room for what surrounds it
BATCH_BYTES = 1024 * 1024   # what travels as one payload, but for a single event that is larger
NO_DIGEST = bytes(32)
NO_LIMIT = 1 << 64


class Tally:
    """`entry` is where the attempt stands, as the spool keeps it; `limit_bytes` of output, 0 for no limit."""

    def __init__(self, run_id: str, attempt: int, limit_bytes: int = 0) -> None:
        self.entry = SpoolEntry(run_id=run_id, attempt=attempt, accepted_us=events.now_us())
        self.seq = 0
        self.dropped: dict[int, int] = {}    # bytes over the output limit, by channel
        self.weight = 0                      # bytes, roughly, of what was taken and is not packed yet
        self.has_output = False
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._digest = NO_DIGEST

    def go_on(self, entry: SpoolEntry) -> None:
        """From where an earlier start of the node left the attempt."""
        self.entry.CopyFrom(entry)
        self.seq, self._bytes = entry.last_seq, entry.bytes
        self._digest = entry.digest or NO_DIGEST
        self.dropped = dict(entry.dropped)
        self.has_output = entry.output_us != 0

    def take(self, happened: Sequence[RuntimeEvent], other: Callable[[RuntimeEvent], bool]) -> list[RuntimeEvent]:
        """Take outputs into the totals; gives what is to be kept, not those above the limit. `other` judges what is none."""
        kept = []
        limit = self._limit_bytes or NO_LIMIT
        total, weight, digest = self._bytes, self.weight, self._digest
        for event in happened:
            if event.WhichOneof("kind") != "output":
                if other(event):
                    kept.append(event)
                    weight += event.ByteSize()
                continue
            data = event.exact or event.output.encode()
            size = len(data)
            whole = size + len(event.raw)
            if self.dropped or total + size > limit or whole > EVENT_BYTES:
                self.dropped[event.channel] = self.dropped.get(event.channel, 0) + size
                continue
            total += size
            weight += whole
            digest = sha256(digest + data).digest()
            kept.append(event)
        self.has_output = self.has_output or digest is not self._digest
        self._bytes, self.weight, self._digest = total, weight, digest
        return kept

    def pack(self, kept: Sequence[RuntimeEvent]) -> list[Kept]:
        """Number them, and pack them as batches."""
        light = len(kept) <= LIGHT_EVENTS and self.weight <= BATCH_BYTES // 2
        self.weight = 0
        return [self._pack(kept)] if light else [self._pack(batch) for batch in _batches(kept)]

    def _pack(self, batch: Sequence[RuntimeEvent]) -> Kept:
        first = self.seq + 1
        self.seq += len(batch)
        entry = self.entry
        packed = EventBatch(run_id=entry.run_id, attempt=entry.attempt, first_seq=first, events=batch).SerializeToString()
        return Kept(first, self.seq, packed)

    def finish(self, kind: str, outcome: Outcome, last: Sequence[RuntimeEvent] = ()) -> list[Kept]:
        """The ending, with the totals, behind its last events and what was cut off."""
        told = [*last, *(RuntimeEvent(at_us=events.now_us(), truncated=Truncated(channel=channel, dropped_bytes=count))
                         for channel, count in sorted(self.dropped.items()))]
        outcome.totals.CopyFrom(Totals(events=self.seq + len(told), bytes=self._bytes, digest=self._digest))
        return self.pack([*told, events.ending(kind, outcome)])

    def place(self, batches: Sequence[Kept] = (), mark: bytes = b"", ended: bool = False) -> bytes:
        """The packed SpoolEntry of these batches. The message is used over and over: it holds what seldom changes."""
        entry = self.entry
        del entry.batches[:]
        for kept in batches:
            entry.batches.append(kept.packed)
        if mark:
            entry.mark = mark
        if ended:
            entry.ended = True
        if self.dropped:
            entry.dropped.update(self.dropped)
        entry.last_seq = self.seq
        entry.bytes = self._bytes
        entry.digest = self._digest
        return entry.SerializeToString()


def _batches(kept: Sequence[RuntimeEvent]) -> Iterator[list[RuntimeEvent]]:
    """Mostly one; weighed only when there are many, or large ones."""
    batch: list[RuntimeEvent] = []
    size = 0
    for event in kept:
        weight = event.ByteSize()
        if batch and (len(batch) == BATCH_EVENTS or size + weight > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += weight
    if batch:
        yield batch
