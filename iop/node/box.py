"""What the node holds of one attempt until the edge has acknowledged it."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from iop.events import ending_of
from iop.node.segments import Segment
from iop.proto.run_pb2 import EventBatch, Outcome
from iop.proto.spool_pb2 import SpoolEntry

Key = tuple[str, int]    # run_id, attempt


class Spooled(Protocol):
    """Whose events they are: a Run."""

    def pause(self) -> None:
        """Too much of it is un-acknowledged."""

    def resume(self) -> None: ...

    def kept(self, mark: bytes) -> None:
        """All that it emitted up to `mark` is on disk."""

    def pack(self) -> None:
        """Put in what it has emitted in this turn."""

    def place(self) -> bytes:
        """A packed SpoolEntry without events: where it stands now."""


class Kept:
    """One batch, packed once: the same bytes go to the disk and to the link."""

    __slots__ = ("first_seq", "last_seq", "packed", "segment")

    def __init__(self, first_seq: int, last_seq: int, packed: bytes) -> None:
        self.first_seq = first_seq
        self.last_seq = last_seq
        self.packed = packed
        self.segment: Segment | None = None      # where it stands on disk

    def move(self, segment: Segment | None) -> None:
        """It stands there now, and is counted there."""
        if self.segment is not None:
            self.segment.batches -= 1
        if segment is not None:
            segment.batches += 1
        self.segment = segment


class Box:
    """The batches of one attempt, oldest first. The last of them may not be on disk yet."""

    __slots__ = ("batches", "entry", "last_seq", "moving", "open", "paused", "place", "recorded", "run", "size", "suspect",
                 "torn")

    def __init__(self, run: Spooled | None = None) -> None:
        self.run = run
        self.batches: deque[Kept] = deque()
        self.size = 0
        self.last_seq = 0                        # on disk
        self.open = True                         # its ending is not on disk yet
        self.recorded = False                    # the node's record has its ending
        self.paused = False
        self.place: Segment | None = None        # the segment of its latest entry
        self.moving = False                      # that entry is about to be written again, elsewhere
        self.entry: SpoolEntry | None = None     # as an earlier start of this node left it; without its batches
        self.suspect = False                     # the spool is damaged, and what was there may have been of this
        self.torn = False                        # and it was

    def move(self, segment: Segment | None) -> None:
        """Its latest entry stands there now, and is counted there."""
        if self.place is not None:
            self.place.places -= 1
        if segment is not None:
            segment.places += 1
        self.place = segment

    @property
    def first_unacked(self) -> int:
        return self.batches[0].first_seq if self.batches else self.last_seq + 1

    def ending(self) -> tuple[str, Outcome] | None:
        """(kind, outcome) as its last batch tells it; None where that is none."""
        return ending_of(EventBatch.FromString(self.batches[-1].packed)) if self.batches else None

    def packed(self, ended: bool) -> bytes:
        """The entry of an earlier start once more, with all its batches that are wanted."""
        entry = SpoolEntry()
        if self.entry is not None:
            entry.CopyFrom(self.entry)
        entry.batches.extend(kept.packed for kept in self.batches)
        entry.ended = ended
        return entry.SerializeToString()
