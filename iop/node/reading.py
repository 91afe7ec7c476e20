"""What an earlier start of the node left in its spool: entry by entry, to the boxes that it makes.

A batch that does not join on to the one before it says that all before it was acknowledged, since a segment goes only then;
but behind damage it may as well say that the damage hit what was between. So an attempt that was open when damage was met is
suspect until its next entry joins on, and is torn where that does not: what stands behind is not taken.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError
from twisted.logger import Logger

from iop.node.box import Box, Kept, Key
from iop.node.segments import Segment
from iop.proto.run_pb2 import EventBatch
from iop.proto.spool_pb2 import SpoolEntry

log = Logger()


class Reading:
    """Fills `boxes` with what it is given, oldest first."""

    def __init__(self, boxes: dict[Key, Box]) -> None:
        self.segments: list[Segment] = []
        self._boxes = boxes

    def take(self, segment: Segment, payload: bytes | None) -> None:
        """One record; None for damage."""
        if not self.segments or self.segments[-1] is not segment:
            self.segments.append(segment)
        if payload is None:
            self._damaged(segment)
            return
        try:
            entry = SpoolEntry.FromString(payload)
            batches = [_kept(packed) for packed in entry.batches]
        except DecodeError:
            self._damaged(segment)
            return
        self._entry(segment, entry, batches)

    def finish(self) -> None:
        """What is suspect to the end is torn: nothing says that the damage was not its own."""
        for box in self._boxes.values():
            box.torn = box.torn or (box.suspect and box.open)

    def _damaged(self, segment: Segment) -> None:
        if not segment.damaged:
            log.error("{file} of the spool is damaged", file=segment.path)
        segment.damaged = True
        for box in self._boxes.values():
            box.suspect = box.suspect or box.open

    def _entry(self, segment: Segment, entry: SpoolEntry, batches: list[Kept]) -> None:
        box = self._boxes.setdefault((entry.run_id, entry.attempt), Box())
        if box.torn or (batches or box.entry is not None) and entry.last_seq < box.last_seq:
            return                                   # written once more when an earlier start put a damaged file aside
        fresh = [kept for kept in batches if kept.last_seq > box.last_seq]
        joins = (fresh[0].first_seq if fresh else entry.last_seq + 1) <= box.last_seq + 1
        if box.suspect and not joins:
            box.torn = True
            return
        box.suspect = False
        if not joins:
            while box.batches:
                box.batches.popleft().move(None)
        for kept in fresh:
            kept.move(segment)
            box.batches.append(kept)
        box.move(segment)
        box.last_seq = max(box.last_seq, entry.last_seq)
        box.open = not entry.ended
        del entry.batches[:]
        box.entry = entry


def _kept(packed: bytes) -> Kept:
    batch = EventBatch.FromString(packed)
    return Kept(batch.first_seq, batch.first_seq + len(batch.events) - 1, packed)
