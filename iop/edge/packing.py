"""Batches of events as bytes: encoded Frames, as links bring them and history keeps them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from iop.proto.link_pb2 import Frame
from iop.proto.run_pb2 import EventBatch

MERGED_BYTES = 256 * 1024        # of batches that are made one; a larger batch stays alone
MAX_EVENTS = 1000                # in one batch


def pack(batch: EventBatch) -> bytes:
    """A batch that the edge itself makes, as a link would have brought it."""
    return Frame(event_batch=batch).SerializeToString()


def unpack(packed: bytes) -> EventBatch:
    return Frame.FromString(packed).event_batch


def joined(packed: Sequence[bytes], first_seq: int) -> bytes:
    """Consecutive batches of one attempt as one, without decoding them; the first of them begins at `first_seq`.

    Encoded messages that follow each other are read as one (protobuf, "Encoding", on last one wins): its events are
    those of all, and of each number the last one counts, so the first batch's `first_seq` is said again at the end.
    """
    if len(packed) == 1:
        return packed[0]
    return b"".join([*packed, pack(EventBatch(first_seq=first_seq))])


class Sheaf:
    """Consecutive batches of one attempt, gathered to be made one."""

    __slots__ = ("attempt", "batch", "count", "first_seq", "packed", "size")

    def __init__(self, batch: EventBatch, packed: bytes) -> None:
        self.batch = batch               # the first one
        self.attempt = batch.attempt
        self.first_seq = batch.first_seq
        self.count = len(batch.events)
        self.packed = [packed]
        self.size = len(packed)

    def add(self, batch: EventBatch, packed: bytes) -> bool:
        """Take one more; False when it does not follow the last one, or the whole would become too large."""
        count, size = self.count + len(batch.events), self.size + len(packed)
        if (batch.first_seq != self.first_seq + self.count or batch.attempt != self.attempt
                or not 0 < self.count < count <= MAX_EVENTS or size > MERGED_BYTES):
            return False
        self.packed.append(packed)
        self.count, self.size = count, size
        return True

    def whole(self) -> tuple[EventBatch, bytes]:
        """All of it as one batch, and that as bytes."""
        if len(self.packed) == 1:
            return self.batch, self.packed[0]
        packed = joined(self.packed, self.first_seq)
        return unpack(packed), packed
