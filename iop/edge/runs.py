"""The runs that have not ended, and everything that happens to them: the one place where a run changes its state.

Decides nothing about nodes: the dispatcher places, the links report, and both tell it here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from iop.config import Price
from iop.edge.cursor import RunCursor
from iop.edge.packing import pack
from iop.edge.prices import cost_micros
from iop.edge.recorder import Recorder
from iop.edge.run import Run
from iop.edge.runlog import Entry, RunLog
from iop.errors import HistoryConflict, HistoryGap, IOPError, NoSuchRun
from iop.events import ENDING_KINDS, ending, ending_of, now_us, outcome_of
from iop.proto.run_pb2 import EventBatch, Outcome, RunRequest
from iop.records import RunRecord
from iop.runs import START, EventId

_OUTPUT = frozenset(("output", "tool_call"))

log = Logger()


class Runs:
    """All runs that have not ended, by id."""

    def __init__(self, history: Any, clock: Any, tail_bytes: int) -> None:
        self._history = history
        self._clock = clock
        self._arrivals = itertools.count(1)
        self._tail_bytes = tail_bytes
        self._runs: dict[str, Run] = {}
        self._dirty: set[RunLog] = set()
        self._on_started: Callable[[Run], object] = _nobody
        self._on_ended: Callable[[Run, Outcome], object] = _nobody
        self._on_committed: Callable[[Run, EventId, int], object] = _nobody
        self._on_refused: Callable[[Run, IOPError], object] = _nobody
        self.prices: Mapping[str, Price] = {}
        self.recorder = Recorder(history, clock, self._written, self._refused)

    def tell(self, *, started: Callable[[Run], object], ended: Callable[[Run, Outcome], object],
             committed: Callable[[Run, EventId, int], object], refused: Callable[[Run, IOPError], object]) -> None:
        """Who is told: once when a run starts, once when it ends, and how far history has it and
        how many bytes more that is, once a commit.

        `refused(run, error)`: history can never have what it did; it has to be ended because of `error`.
        """
        self._on_started, self._on_ended, self._on_committed, self._on_refused = started, ended, committed, refused

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(tuple(self._runs.values()))

    def get(self, run_id: str) -> Run | None:
        return self._runs.get(run_id)

    def of_node(self, node_id: str) -> list[Run]:
        """The runs that are, or may be, with a node."""
        return [run for run in self._runs.values() if run.sent and run.record.node_id == node_id and not run.record.ended]

    def add(self, record: RunRecord, request: RunRequest, *, committed_seq: int = 0) -> Run:
        """Take up a run that history has; `committed_seq` of its attempt is there already."""
        place = EventId(record.attempt, committed_seq) if committed_seq else START
        age_s = max(now_us() - record.created_us, 0) / 1e6
        run = Run(record, request, RunLog(record.run_id, place, self._tail_bytes, self._dirty), next(self._arrivals),
                  self._clock.seconds() - age_s)
        self._runs[record.run_id] = run
        return run

    def change(self, run: Run, **changes: Any) -> Deferred[None]:
        """Set columns of a run, in memory now and in history soon."""
        _apply(run.record, changes)
        self.recorder.hurry()
        done: Deferred[None] = self._history.update_run(run.run_id, changes)
        return done

    def note(self, run: Run, **changes: Any) -> Deferred[None]:
        """Set columns that nobody has to wait for: when history cannot take them, the next change or the ending will tell.

        Fires when it is known whether it did; never fails.
        """
        return self.change(run, **changes).addErrback(
            lambda failure: log.warn("run {run_id}: {trouble}", run_id=run.run_id, trouble=failure.getErrorMessage()))

    def append(self, run: Run, batch: EventBatch, packed: bytes) -> bool:
        """Add a batch of a run's node; False when it was here before. Raises what RunLog.append raises."""
        entry = run.log.append(batch, packed)
        if entry is None:
            return False
        changes = None
        if not run.record.started_us:
            changes = self._begin(run, entry.batch)
        if not run.record.first_output_us and any(event.WhichOneof("kind") in _OUTPUT for event in entry.batch.events):
            run.record.first_output_us = now_us()        # stored with the ending: it is worth no write of its own
        if run.log.ended:
            self._end(run, entry, changes)
        else:
            self.recorder.write(run, entry, changes)
        return True

    def _begin(self, run: Run, batch: EventBatch) -> dict[str, Any] | None:
        """The first batch makes it running, unless all it tells is how the run ended."""
        if batch.events[0].WhichOneof("kind") in ENDING_KINDS:
            return None
        changes = {"state": "running", "started_us": now_us()}
        _apply(run.record, changes)
        self._on_started(run)
        return changes

    def skip(self, run: Run, through_seq: int, reason: str) -> None:
        """Its events up to `through_seq` are lost for good: a gap stands in their place, and the run goes on behind it."""
        entry = run.log.skip(run.record.attempt, through_seq, reason)
        changes = {"incomplete": 1}
        _apply(run.record, changes)
        if not run.record.started_us:
            changes |= self._begin(run, entry.batch) or {}
        self.recorder.write(run, entry, changes)

    def end(self, run: Run, kind: str, outcome: Outcome) -> None:
        """An ending that the edge itself makes: the only event of an attempt of its own, so that it never collides
        with what a node still sends. Nothing happens when the run has ended already."""
        if run.record.ended:
            return
        batch = EventBatch(run_id=run.run_id, attempt=max(run.record.attempt, run.log.last.attempt) + 1, first_seq=1,
                           events=[ending(kind, outcome)])
        entry = run.log.append(batch, pack(batch), own=True)
        if entry is not None:
            run.sent = False             # whatever a node still sends of it is late
            self._end(run, entry, {"attempt": batch.attempt} | ({"incomplete": 1} if outcome.code == HistoryGap.code else {}))
            self.flush()

    def fail(self, run: Run, error: IOPError) -> None:
        """End it as failed because of `error`, by the edge."""
        self.end(run, "failed", outcome_of(error))

    def _end(self, run: Run, entry: Entry, changes: dict[str, Any] | None) -> None:
        """One transaction holds the ending, the row and what people search in it."""
        found = ending_of(entry.batch)
        if found is None:
            return
        kind, outcome = found
        changes = (changes or {}) | {
            "state": kind, "ended_us": now_us(), "outcome": outcome.SerializeToString(), "outcome_code": outcome.code,
            "output_text": run.log.output_text(), "first_output_us": run.record.first_output_us,
            "prompt_tokens": outcome.usage.prompt_tokens, "completion_tokens": outcome.usage.completion_tokens,
            "cached_tokens": outcome.usage.cached_tokens, "cost_micros": cost_micros(self.prices, run.record, outcome.usage)}
        _apply(run.record, changes)
        self.recorder.write(run, entry, changes)
        self._on_ended(run, outcome)

    def _written(self, run: Run, entries: Sequence[Entry]) -> None:
        size = 0
        for entry in entries:
            run.log.commit(entry)
            size += entry.size
        self._on_committed(run, run.log.committed, size)
        if run.log in self._dirty:           # what was withheld may be shown
            self._dirty.discard(run.log)
            run.log.tell()
        if run.record.ended and run.log.committed == run.log.last:
            self._runs.pop(run.run_id, None)
            waiting, run.when_stored = run.when_stored, []
            for deferred in waiting:
                deferred.callback(None)

    def stored(self, run: Run) -> Deferred[None]:
        """Fires once history has all of a run that has ended. May be cancelled."""
        waiting: Deferred[None] = Deferred(run.when_stored.remove)
        run.when_stored.append(waiting)
        return waiting

    def _refused(self, run: Run) -> None:
        run.record.ended_us, run.log.ended = 0, False    # an ending that history does not have is none
        self._on_refused(run, HistoryConflict())

    def flush(self) -> None:
        """Tell the readers of every log that grew, then history; called once at the end of each read of a link."""
        while self._dirty:
            self._dirty.pop().tell()
        self.recorder.flush()

    async def cursor(self, run_id: str, after: EventId) -> RunCursor:
        """A reader's place behind `after`. Raises NoSuchRun."""
        if run_id not in self._runs:
            await self._history.run(run_id)
        run = self._runs.get(run_id)
        return RunCursor(run_id, after, self._history, run.log if run is not None else None)

    def cursor_of(self, run: Run, after: EventId) -> RunCursor:
        """A reader's place in a run that is here."""
        return RunCursor(run.run_id, after, self._history, run.log)

    async def record(self, run_id: str) -> RunRecord:
        """The run as it is now. Raises NoSuchRun."""
        run = self._runs.get(run_id)
        if run is None:
            found: RunRecord = await self._history.run(run_id)
            return found
        return run.record

    def require(self, run_id: str) -> Run:
        run = self._runs.get(run_id)
        if run is None:
            raise NoSuchRun()
        return run


def _nobody(*_: object) -> None:
    """Until the service says who is told."""


def _apply(record: RunRecord, changes: dict[str, Any]) -> None:
    for name, value in changes.items():
        setattr(record, name, value)
