"""A history in memory with the manners of the real one: writes wait for a commit, in order, and can be made to fail.

::

    history = FakeHistory()              # commits at once
    history = FakeHistory(held=True)     # commits when the test says history.commit()
    history.trouble = "the disk is full" # every write fails, until it is "" again
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from iop.errors import Conflict, HistoryUnavailable, IOPError, NoSuchRun
from iop.interfaces import IHistory
from iop.proto import node_pb2, run_pb2
from iop.proto.link_pb2 import Frame
from iop.records import BatchRow, RunQuery, RunRecord, SessionRecord, UsageQuery, UsageRow
from iop.runs import EventId
from iop.testing.runs import matches
from iop.wholeness import Checker, Findings

DAY_US = 86_400_000_000


@dataclass
class _Batch:
    attempt: int
    first_seq: int
    last_seq: int
    packed: bytes


@dataclass
class _Kept:
    """All that a history keeps."""

    runs: dict[str, RunRecord] = field(default_factory=dict)
    batches: dict[str, list[_Batch]] = field(default_factory=dict)
    late: dict[tuple[str, int, int], bytes] = field(default_factory=dict)
    events: list[node_pb2.EdgeNodeEvent] = field(default_factory=list)
    audits: list[tuple[run_pb2.Source, str, Any]] = field(default_factory=list)
    sessions: dict[str, SessionRecord] = field(default_factory=dict)


def covers_from(row: BatchRow) -> int:
    """The first number that a row tells something of; a gap tells of those before its own."""
    first = Frame.FromString(row.packed).event_batch.events[0]
    return first.gap.first_seq if first.HasField("gap") else row.first_seq


def _count(packed: bytes) -> int:
    return len(Frame.FromString(packed).event_batch.events)


@implementer(IHistory)
class FakeHistory:
    """See the module. `kept` can be given to another FakeHistory: a restart of the edge."""

    def __init__(self, *, held: bool = False, kept: _Kept | None = None) -> None:
        self.held = held
        self.trouble = ""
        self.kept = kept or _Kept()
        self._queue: list[tuple[Callable[[], Any], Deferred[Any]]] = []
        self._committing = False

    @property
    def available(self) -> bool:
        return not self.trouble

    def open(self) -> Deferred[None]:
        return succeed(None)

    def close(self) -> Deferred[None]:
        self.commit()
        return succeed(None)

    def backlog(self) -> int:
        return len(self._queue)

    def commit(self) -> None:
        """Commit what is queued; its Deferreds fire, in order. What is written meanwhile comes behind it: with the next
        commit(), or at once where nothing is held."""
        while self._queue and not self._committing:
            self._committing = True
            try:
                self._commit()
            finally:
                self._committing = False
            if self.held:
                break

    def _commit(self) -> None:
        queue, self._queue = self._queue, []
        done: list[tuple[Deferred[Any], Any]] = []
        for work, deferred in queue:
            if self.trouble:
                done.append((deferred, HistoryUnavailable(self.trouble)))
                continue
            try:
                done.append((deferred, work()))
            except IOPError as error:
                done.append((deferred, error))
        for deferred, result in done:
            if isinstance(result, IOPError):
                deferred.errback(result)
            else:
                deferred.callback(result)

    def _write(self, work: Callable[[], Any]) -> Deferred[Any]:
        deferred: Deferred[Any] = Deferred()
        self._queue.append((work, deferred))
        if not self.held:
            self.commit()
        return deferred

    def create_run(self, record: RunRecord) -> Deferred[RunRecord]:
        new = copy.copy(record)

        def work() -> RunRecord:
            for old in self.kept.runs.values():
                if (new.idempotency_key is not None and old.idempotency_key == new.idempotency_key
                        and old.principal == new.principal and old.created_us > new.created_us - DAY_US):
                    return copy.copy(old)
            self.kept.runs[new.run_id] = new
            return copy.copy(new)
        return self._write(work)

    def update_run(self, run_id: str, changes: dict[str, Any]) -> Deferred[None]:
        return self._write(lambda: self._change(run_id, changes))

    def _change(self, run_id: str, changes: Mapping[str, Any] | None) -> None:
        for name, value in (changes or {}).items():
            setattr(self.kept.runs[run_id], name, value)

    def append(self, rows: Sequence[BatchRow]) -> Deferred[None]:
        def work() -> None:
            for row in rows:
                self._append(row)
        return self._write(work)

    def _append(self, row: BatchRow) -> None:
        batches = self.kept.batches.setdefault(row.run_id, [])
        stored = {batch.first_seq: batch.last_seq for batch in batches if batch.attempt == row.attempt}
        if stored.get(row.first_seq, row.last_seq) != row.last_seq:
            raise Conflict(f"batch {row.attempt}.{row.first_seq} is there, and another one")
        last = max((batch.last_seq for batch in batches if batch.attempt == row.attempt), default=0)
        if row.last_seq <= last:
            return
        if row.first_seq != last + 1 and covers_from(row) != last + 1:
            raise HistoryUnavailable(f"batch {row.attempt}.{row.first_seq} does not follow {last}")
        batches.append(_Batch(row.attempt, row.first_seq, row.last_seq, row.packed))
        self._change(row.run_id, row.changes)

    def append_late(self, run_id: str, attempt: int, first_seq: int, last_seq: int, packed: bytes) -> Deferred[None]:
        def work() -> None:
            if self.kept.late.setdefault((run_id, attempt, first_seq), packed) != packed:
                raise Conflict(f"late batch {attempt}.{first_seq} is there, and another one")
        return self._write(work)

    def run(self, run_id: str) -> Deferred[RunRecord]:
        found = self.kept.runs.get(run_id)
        return fail(NoSuchRun()) if found is None else succeed(copy.copy(found))

    def runs(self, query: RunQuery) -> Deferred[tuple[list[RunRecord], str]]:
        found = [copy.copy(record) for record in self.kept.runs.values() if matches(record, query)]
        found.sort(key=lambda record: record.run_id, reverse=True)
        if query.cursor:
            found = [record for record in found if record.run_id < query.cursor]
        page = found[:query.limit]
        return succeed((page, page[-1].run_id if len(found) > len(page) else ""))

    def open_runs(self) -> Deferred[list[RunRecord]]:
        return succeed([copy.copy(record) for record in self.kept.runs.values() if not record.ended])

    def batches(self, run_id: str, after: EventId, limit_bytes: int) -> Deferred[list[bytes]]:
        page: list[bytes] = []
        for batch in sorted(self.kept.batches.get(run_id, []), key=lambda item: (item.attempt, item.first_seq)):
            if (batch.attempt, batch.last_seq) <= (after.attempt, after.seq):
                continue
            page.append(batch.packed)
            if sum(map(len, page)) > limit_bytes:
                break
        return succeed(page)

    def late(self, run_id: str, after: EventId, limit_bytes: int) -> Deferred[list[bytes]]:
        return succeed([packed for (kept_id, attempt, first_seq), packed in sorted(self.kept.late.items())
                        if kept_id == run_id and (attempt, first_seq + _count(packed) - 1) > (after.attempt, after.seq)])

    def committed(self, run_id: str, attempt: int) -> Deferred[int]:
        return succeed(max((batch.last_seq for batch in self.kept.batches.get(run_id, []) if batch.attempt == attempt),
                           default=0))

    def committed_late(self, run_id: str, attempt: int) -> Deferred[int]:
        return succeed(max((first_seq + _count(packed) - 1 for (kept_id, tried, first_seq), packed in self.kept.late.items()
                            if (kept_id, tried) == (run_id, attempt)), default=0))

    def verify(self, run_id: str) -> Deferred[Findings]:
        if run_id not in self.kept.runs:
            return fail(NoSuchRun())
        checker = Checker(copy.copy(self.kept.runs[run_id]))
        for row in sorted(self.kept.batches.get(run_id, []), key=lambda item: (item.attempt, item.first_seq)):
            checker.batch(row.attempt, row.first_seq, row.last_seq, row.packed)
        for (kept_id, attempt, first_seq), packed in sorted(self.kept.late.items()):
            if kept_id == run_id:
                checker.late(attempt, first_seq, first_seq + _count(packed) - 1)
        return succeed(checker.findings())

    def usage(self, query: UsageQuery) -> Deferred[list[UsageRow]]:
        rows: dict[tuple[str, ...], UsageRow] = {}
        for run in self.kept.runs.values():
            if not query.since_us <= run.created_us < (query.until_us or 2 ** 62):
                continue
            if query.principal and run.principal != query.principal:
                continue
            names = {"key": run.principal, "model": f"{run.adapter}/{run.target}", "node": run.node_id}
            group = {name: names[name] for name in query.by}
            row = rows.setdefault(tuple(group.values()), UsageRow(**group))
            row.runs += 1
            for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "cost_micros"):
                setattr(row, name, getattr(row, name) + getattr(run, name))
        return succeed(sorted(rows.values(), key=lambda row: (-row.tokens, -row.runs, row.key, row.model, row.node)))

    def append_event(self, event: node_pb2.EdgeNodeEvent) -> Deferred[int]:
        stored = node_pb2.EdgeNodeEvent()
        stored.CopyFrom(event)

        def work() -> int:
            stored.event_id = len(self.kept.events) + 1
            self.kept.events.append(stored)
            return stored.event_id
        return self._write(work)

    def events(self, after: int | None, limit: int) -> Deferred[list[node_pb2.EdgeNodeEvent]]:
        if after is None:
            return succeed(self.kept.events[-limit:])
        return succeed([event for event in self.kept.events if event.event_id > after][:limit])

    def audit(self, source: run_pb2.Source, action: str, detail: Any) -> Deferred[None]:
        return self._write(lambda: self.kept.audits.append((source, action, detail)))

    def sessions(self) -> Deferred[list[SessionRecord]]:
        return succeed([copy.copy(record) for record in self.kept.sessions.values()])

    def put_session(self, record: SessionRecord) -> Deferred[None]:
        new = copy.copy(record)

        def work() -> None:
            self.kept.sessions[new.session_id] = new
        return self._write(work)
