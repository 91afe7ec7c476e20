"""Runs whose events a test tells, and their readers: the part of an edge that a face reads from."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from twisted.internet import defer
from zope.interface import implementer

from iop import events
from iop.errors import IOPError
from iop.interfaces import IRunCursor
from iop.proto import run_pb2
from iop.records import RunQuery, RunRecord
from iop.runs import EventId

Script = Callable[["FakeRun"], None]


def script(*told: run_pb2.RuntimeEvent, ending: str = "completed", error: IOPError | None = None) -> Script:
    """A script that emits `told` in one batch and ends the run at once: as `failed` when there is an error."""
    def play(run: FakeRun) -> None:
        run.start()
        run.emit(*told)
        run.end("failed" if error else ending, events.outcome_of(error) if error else None)
    return play


def matches(record: RunRecord, query: RunQuery) -> bool:
    """Whether a run is one that a query asks for."""
    wanted = msgspec.structs.asdict(query)
    return record.created_us >= query.since_us and all(
        not wanted[name] or getattr(record, name) == wanted[name]
        for name in ("state", "adapter", "target", "node_id", "session_id", "principal"))


class FakeEntry:
    """What iop.edge.runlog.Entry is to its readers."""

    __slots__ = ("attempt", "batch", "dialects", "ends", "first_seq", "last_seq", "packed", "size")

    def __init__(self, batch: run_pb2.EventBatch) -> None:
        self.attempt = batch.attempt
        self.first_seq = batch.first_seq
        self.last_seq = batch.first_seq + len(batch.events) - 1
        self.batch = batch
        self.packed = batch.SerializeToString()
        self.size = len(self.packed)
        self.dialects: dict[str, bytes] = {}
        self.ends = events.ending_of(batch) is not None

    def after(self, event_id: EventId) -> FakeEntry | None:
        """What of it lies behind `event_id`: itself, a shorter one, or None."""
        if (self.attempt, self.last_seq) <= (event_id.attempt, event_id.seq):
            return None
        if self.attempt != event_id.attempt or self.first_seq > event_id.seq:
            return self
        kept = self.batch.events[event_id.seq - self.first_seq + 1:]
        return FakeEntry(run_pb2.EventBatch(run_id=self.batch.run_id, attempt=self.attempt, first_seq=event_id.seq + 1,
                                            events=kept))


@implementer(IRunCursor)
class FakeCursor:
    """A reader's place in a FakeRun. With `run.lagging`, take() answers by a Deferred that the test fires."""

    def __init__(self, run: FakeRun, after: EventId) -> None:
        self._run = run
        self.after = after
        self.ended = False
        self.closed = False
        self.callback: Callable[[], object] | None = None

    def take(self, limit_bytes: int) -> list[FakeEntry] | defer.Deferred[list[FakeEntry]]:
        taken: list[FakeEntry] = []
        size = 0
        for entry in self._run.entries:
            rest = entry.after(self.after)
            if rest is None:
                continue
            if taken and size + rest.size > limit_bytes:
                break
            taken.append(rest)
            size += rest.size
            self.after = EventId(rest.attempt, rest.last_seq)
        ended = self._run.record.ended and self.after >= self._run.last_id
        if self._run.lagging is None:
            self.ended = ended
            return taken
        catching_up, self._run.lagging = self._run.lagging, None

        def caught_up(_: object) -> list[FakeEntry]:
            self.ended = ended
            return taken
        return catching_up.addCallback(caught_up)

    def notify(self, callback: Callable[[], object]) -> None:
        self.callback = callback

    def close(self) -> None:
        self.closed = True
        self.callback = None


class FakeRun:
    """One run of the fake edge; a test tells what happens in it."""

    def __init__(self, record: RunRecord, request: run_pb2.RunRequest) -> None:
        self.record = record
        self.request = request
        self.entries: list[FakeEntry] = []
        self.cursors: list[FakeCursor] = []
        self.cancels: list[tuple[run_pb2.Source, str]] = []
        self.inputs: list[tuple[bytes, bool]] = []
        self.clients = 0             # that attend it
        self.late: list[run_pb2.EventBatch] = []
        self.lagging: defer.Deferred[object] | None = None
        self._seq = 0

    @property
    def last_id(self) -> EventId:
        return EventId(self.record.attempt, self._seq)

    def start(self) -> None:
        """It is placed on a node and its backend has answered."""
        self.record.state = "running"
        self.record.started_us = self.record.placed_us = events.now_us()
        self.emit(events.started(self.record.adapter, self.record.target))

    def emit(self, *told: run_pb2.RuntimeEvent) -> None:
        """Append one batch, and tell the readers."""
        if not told:
            return
        self.entries.append(FakeEntry(run_pb2.EventBatch(
            run_id=self.record.run_id, attempt=self.record.attempt, first_seq=self._seq + 1, events=told)))
        self._seq += len(told)
        for cursor in list(self.cursors):
            if cursor.callback is not None:
                cursor.callback()

    def end(self, kind: str, outcome: run_pb2.Outcome | None = None) -> None:
        """Its terminal event, and the row's ending."""
        outcome = outcome or run_pb2.Outcome(code="ok" if kind == "completed" else kind)
        self.record.state = kind
        self.record.ended_us = events.now_us()
        self.record.outcome = outcome.SerializeToString()
        self.record.outcome_code = outcome.code
        self.emit(events.ending(kind, outcome))
