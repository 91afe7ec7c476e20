"""Events that the edge has not acknowledged, on the node's own disk and in memory.

::

    put --end of the turn--> one write for all runs --> frames, kept() --acknowledged--> gone; its segment with the last
                                |
                                +-- the disk takes nothing: all runs are held back, nothing is sent, again in a second

The disk is read at start only. What an open attempt needs to be taken up again (its latest entry) moves to the newest
segment before its own goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from iop.node.box import Box, Kept, Key, Spooled
from iop.node.reading import Reading
from iop.node.segments import Segment, SegmentLog
from iop.node.windows import Windows
from iop.proto.spool_pb2 import SpoolEntry

log = Logger()

QUOTA_BYTES = 256 * 1024 * 1024       # on disk; above it all runs are held back. The edge's link window is 8 MiB by default
RETRY_S = 1.0
FORGOTTEN = 1 << 64                   # above every sequence number


class Put(NamedTuple):
    """One emit that waits for the end of the turn."""

    box: Box
    batches: Sequence[Kept]
    payload: bytes
    mark: bytes
    ended: bool


class Spool:
    """All un-acknowledged events of this node. `deliver(packed EventBatch)` sends one, where it can be sent now."""

    def __init__(self, segments: SegmentLog, clock: IReactorTime, quota_bytes: int = QUOTA_BYTES) -> None:
        self.deliver: Callable[[bytes], None] = lambda packed: None
        self.stuck = ""                       # why the disk takes nothing
        self._log = segments
        self._clock = clock
        self._quota_bytes = quota_bytes
        self._boxes: dict[Key, Box] = {}
        self._turn: list[Put] = []
        self._emitting: list[Spooled] = []    # what has emitted in this turn, and puts it in at its end
        self._due: IDelayedCall | None = None
        self._closed = False
        self.windows = Windows(self._boxes.values)

    # --- an earlier start's

    def recover(self) -> None:
        """Read what an earlier start left. Where it is damaged, all that is good is written again, and the file put aside."""
        reading = Reading(self._boxes)
        for segment, payload in self._log.read():
            reading.take(segment, payload)
        reading.finish()
        for box in self._boxes.values():
            self.windows.changed(box, sum(len(kept.packed) for kept in box.batches))
        if any(segment.damaged for segment in reading.segments):
            for box in self._boxes.values():
                if not box.torn:      # whose ending is written with what there is of it, all or nothing
                    self._put(box, list(box.batches), box.packed(not box.open), b"", not box.open)
        for segment in reading.segments:
            self._tidy(segment)

    def box(self, run_id: str, attempt: int) -> Box | None:
        """What there is of an attempt; None where that is nothing."""
        return self._boxes.get((run_id, attempt))

    # --- what the runs put in

    def open(self, run_id: str, attempt: int, run: Spooled) -> None:
        """Make room for an attempt, before its first event; or let `run` go on with what is there."""
        box = self._boxes.setdefault((run_id, attempt), Box())
        box.run = run
        self.windows.weigh(box)

    def soon(self, run: Spooled) -> None:
        """Have it packed at the end of this turn."""
        self._emitting.append(run)
        self._schedule()

    def put(self, key: Key, batches: Sequence[Kept], payload: bytes, mark: bytes = b"", ended: bool = False) -> bool:
        """Store a packed SpoolEntry and these batches of it, all or nothing, at the end of this turn; then send them.

        False where the attempt has no box: the edge does not want it.
        """
        box = self._boxes.get(key)
        if box is None:
            return False
        box.batches.extend(batches)
        self._put(box, batches, payload, mark, ended)
        self.windows.changed(box, sum([len(kept.packed) for kept in batches]))
        return True

    def end(self, run_id: str, attempt: int, ending: Sequence[Kept], entry: SpoolEntry) -> None:
        """End an attempt of an earlier start, which has a box. `entry`: its place behind the ending."""
        box = self._boxes[run_id, attempt]
        box.batches.extend(ending)
        box.entry = entry
        self._put(box, list(box.batches), box.packed(True), b"", True)
        self.windows.changed(box, sum(len(kept.packed) for kept in ending))

    def _put(self, box: Box, batches: Sequence[Kept], payload: bytes, mark: bytes, ended: bool) -> None:
        self._turn.append(Put(box, batches, payload, mark, ended))
        self._schedule()

    def _schedule(self) -> None:
        if self._due is None and not self._closed:
            self._due = self._clock.callLater(0, self.flush)

    def flush(self) -> None:
        """Write what waits, in one piece, and send it. Where that fails, it waits on and is tried again."""
        emitting, self._emitting = self._emitting, []
        for run in emitting:
            run.pack()
        if self._due is not None:
            if self._due.active():
                self._due.cancel()
            self._due = None
        turn = self._turn
        if not turn:
            return
        before = self._log.current
        try:
            # Places that only move on begin no segment: they would chase one another through ever new ones.
            segment = self._log.append([put.payload for put in turn], may_begin=any(put.batches for put in turn))
        except OSError as error:
            self._hold(error.strerror or str(error))
            return
        self._turn = []
        for put in turn:
            self._stored(put, segment)
        self._release()
        self._tell(turn)
        if before is not segment and before is not None:
            self._tidy(before)

    def _stored(self, put: Put, segment: Segment) -> None:
        box = put.box
        for kept in put.batches:
            kept.move(segment)
            if kept.last_seq > box.last_seq:
                box.last_seq = kept.last_seq
        if put.ended:
            box.open = False
        box.moving = False
        before = box.place
        box.move(segment)
        if before is not None and before is not segment:
            self._tidy(before)

    def _tell(self, turn: list[Put]) -> None:
        """Send it, and tell each run how far it is kept."""
        heard: dict[Box, bytes] = {}
        for put in turn:
            for kept in put.batches:
                self.deliver(kept.packed)
            heard[put.box] = put.mark or heard.get(put.box, b"")
        for box, mark in heard.items():
            if box.run is not None:
                box.run.kept(mark)

    def _hold(self, reason: str) -> None:
        """The disk takes nothing."""
        if not self.stuck:
            log.error("the spool cannot be written: {reason}; all runs are held back until it can", reason=reason)
        self.stuck = reason
        self.windows.hold(True)
        if not self._closed:
            self._due = self._clock.callLater(RETRY_S, self.flush)

    def _release(self) -> None:
        if self.stuck:
            log.info("the spool can be written again")
            self.stuck = ""
        self.windows.hold(self._log.size_bytes > self._quota_bytes)

    def look(self) -> None:
        """Called once a second: what follows goes to a new file where the present one was deleted."""
        self._log.look()

    def close(self) -> None:
        """The last write. What comes later is not kept."""
        self._closed = True
        self.flush()
        self._log.close()

    # --- what the edge says

    def acknowledged(self, run_id: str, attempt: int, through_seq: int) -> None:
        """The edge's history has these."""
        key = run_id, attempt
        box = self._boxes.get(key)
        if box is None:
            return
        gone = 0
        through_seq = min(through_seq, box.last_seq)
        while box.batches and box.batches[0].last_seq <= through_seq:
            gone += self._let_go(box.batches.popleft())
        self._forget_if_done(key, box)
        self.windows.changed(box, -gone)

    def recorded(self, run_id: str, attempt: int) -> None:
        """The node's record has the ending of this attempt; it is forgotten once all is acknowledged."""
        box = self._boxes.get((run_id, attempt))
        if box is not None:
            box.recorded = True
            self._forget_if_done((run_id, attempt), box)

    def drop(self, run_id: str, attempt: int) -> None:
        """Forget an attempt, events and all: the edge does not want them."""
        box = self._boxes.pop((run_id, attempt), None)
        if box is None:
            return
        self._turn = [put for put in self._turn if put.box is not box]
        for kept in box.batches:
            self._let_go(kept)
        self._leave(box)
        self.windows.changed(box, -box.size)

    def pending_from(self, run_id: str, attempt: int, seq: int) -> list[bytes]:
        """The packed batches on disk that hold `seq` and what follows it; the first may begin before it."""
        box = self._boxes.get((run_id, attempt))
        if box is None:
            return []
        return [kept.packed for kept in box.batches if seq <= kept.last_seq <= box.last_seq]

    def first_unacked(self, run_id: str, attempt: int) -> int:
        """The earliest event that can still be sent; behind all of them where the attempt is forgotten."""
        box = self._boxes.get((run_id, attempt))
        return box.first_unacked if box is not None else FORGOTTEN

    def last_seq(self, run_id: str, attempt: int) -> int:
        """The latest event; behind all of them where the attempt is forgotten: it may be acknowledged twice."""
        box = self._boxes.get((run_id, attempt))
        return box.last_seq if box is not None else FORGOTTEN

    def boxes(self) -> Iterator[tuple[Key, Box]]:
        """Every attempt that is open or not wholly acknowledged."""
        return iter(list(self._boxes.items()))

    def __contains__(self, key: Key) -> bool:
        return key in self._boxes

    def __len__(self) -> int:
        return len(self._boxes)

    @property
    def size_bytes(self) -> int:
        """What is un-acknowledged."""
        return self.windows.size

    @property
    def disk_bytes(self) -> int:
        return self._log.size_bytes

    # --- segments

    def _let_go(self, kept: Kept) -> int:
        segment = kept.segment
        kept.move(None)
        if segment is not None and not segment.batches:
            self._tidy(segment)
        return len(kept.packed)

    def _forget_if_done(self, key: Key, box: Box) -> None:
        if not box.open and not box.batches and box.recorded and self._boxes.pop(key, None) is not None:
            self._leave(box)

    def _leave(self, box: Box) -> None:
        segment = box.place
        box.move(None)
        if segment is not None:
            self._tidy(segment)

    def _tidy(self, segment: Segment) -> None:
        """Remove it if nothing of it is wanted; where only the places of open attempts are, those move first."""
        if segment.batches or segment.gone or segment is self._log.current:
            return
        if segment.places:
            for box in list(self._boxes.values()):
                if box.place is segment and box.open and not box.moving and box.run is not None:
                    box.moving = True
                    self._put(box, (), box.run.place(), b"", False)
            return
        try:
            if segment.damaged:
                log.error("a damaged part of the spool is kept as {file}", file=self._log.set_aside(segment))
            else:
                self._log.remove(segment)
        except OSError as error:
            log.warn("{file} of the spool stays: {reason}", file=segment.path, reason=error.strerror)
        self.windows.hold(bool(self.stuck) or self._log.size_bytes > self._quota_bytes)
