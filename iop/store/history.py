"""The history of an edge in SQLite or PostgreSQL: the IHistory that an edge runs with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from twisted.internet.defer import Deferred
from zope.interface import implementer

from iop.errors import HistoryUnavailable
from iop.events import ending, now_us, outcome_of
from iop.interfaces import IHistory
from iop.proto import node_pb2, run_pb2
from iop.proto.link_pb2 import Frame
from iop.proto.run_pb2 import EventBatch
from iop.records import BatchRow, RunQuery, RunRecord, SessionRecord, UsageQuery
from iop.runs import EventId
from iop.store import reader, tables, usage
from iop.store.engine import parse_url
from iop.store.store import Store
from iop.store.work import Write
from iop.store.writer import HistoryWriter

EVENT_WAIT_S = 0.02      # of a lifecycle event for a commit to go with: most come just before one of a run

# What update_run and append may set, with the types of its values.
_CHANGEABLE: dict[str, Any] = {column.name: column.type.python_type for column in tables.runs.columns
                               if column.name != "run_id"} | {"idempotency_key": (str, type(None))}


@implementer(IHistory)
class History:
    """An IHistory behind an SQLAlchemy URL (``sqlite:////path``, ``postgresql://user@host/name``).

    While the database is gone, what a person or program waits for (create_run, update_run, audit, put_session) fails with
    HistoryUnavailable after 5 s; create_run and audit are then withdrawn, the others stay in their place in the queue.
    Batches and lifecycle events wait until it is back. `available` tells of it.
    """

    def __init__(self, url: str, reactor: Any) -> None:
        writer = HistoryWriter()
        self._store = Store(parse_url(url), "history", reactor, writer.prepare, writer.carry_out,
                            self._came_too_late)

    @property
    def available(self) -> bool:
        """Whether the last commit went through."""
        return self._store.available

    def open(self) -> Deferred:
        return self._store.open()

    def close(self) -> Deferred:
        return self._store.close()

    def backlog(self) -> int:
        return self._store.backlog()

    # --- writes ---

    def create_run(self, record: RunRecord) -> Deferred:
        return self._store.write_soon("create", msgspec.structs.replace(record), len(record.request), withdraw=True)

    def update_run(self, run_id: str, changes: Mapping[str, object]) -> Deferred:
        return self._store.write_soon("update", (run_id, _checked(changes)))

    def append(self, rows: Sequence[BatchRow]) -> Deferred:
        """One write, whatever the number of rows: what a commit costs the reactor does not grow with it.

        Fails with Conflict when another batch has the first_seq of one, and when a number is beyond 63 bits.
        """
        rows = [row._replace(changes=_checked(row.changes)) if row.changes else row for row in rows]
        return self._store.write("append", rows, sum([len(row.packed) for row in rows]))

    def append_late(self, run_id: str, attempt: int, first_seq: int, last_seq: int, packed: bytes) -> Deferred:
        return self._store.write("late", [BatchRow(run_id, attempt, first_seq, last_seq, packed)], len(packed))

    def append_event(self, event: node_pb2.EdgeNodeEvent) -> Deferred:
        packed = event.SerializeToString()
        return self._store.write("event", (event.at_us, event.kind, event.node_id, event.run_id, packed), len(packed),
                                 EVENT_WAIT_S)

    def audit(self, source: run_pb2.Source, action: str, detail: object) -> Deferred:
        words = detail if isinstance(detail, str) else json.dumps(detail, ensure_ascii=False, default=str)
        return self._store.write_soon(
            "audit", (now_us(), source.face, source.principal, source.request_id, action, words), withdraw=True)

    def put_session(self, record: SessionRecord) -> Deferred:
        return self._store.write_soon("session", msgspec.structs.replace(record))

    def _came_too_late(self, write: Write) -> None:
        """A run was stored just after its caller was told that it was not: it ends here, as what the caller was told."""
        if write.kind != "create" or write.result is not write.values:
            return
        record, outcome = write.values, outcome_of(HistoryUnavailable())
        changes = {"state": "failed", "attempt": record.attempt + 1, "ended_us": now_us(),
                   "outcome": outcome.SerializeToString(), "outcome_code": outcome.code}
        batch = EventBatch(run_id=record.run_id, attempt=record.attempt + 1, first_seq=1, events=[ending("failed", outcome)])
        self.append([BatchRow(record.run_id, batch.attempt, 1, 1, Frame(event_batch=batch).SerializeToString(), changes)])

    # --- reads ---

    def run(self, run_id: str) -> Deferred:
        return self._store.read(partial(reader.run, run_id=run_id))

    def runs(self, query: RunQuery) -> Deferred:
        """The records of a list come without their `request`."""
        return self._store.read(partial(reader.runs, query=query))

    def usage(self, query: UsageQuery) -> Deferred:
        return self._store.read(partial(usage.summed, query=query))

    def open_runs(self) -> Deferred:
        return self._store.read(reader.open_runs)

    def batches(self, run_id: str, after: EventId, limit_bytes: int) -> Deferred:
        return self._store.read(partial(reader.batches, run_id=run_id, after=after, limit_bytes=limit_bytes))

    def late(self, run_id: str, after: EventId, limit_bytes: int) -> Deferred:
        return self._store.read(partial(reader.late, run_id=run_id, after=after, limit_bytes=limit_bytes))

    def committed(self, run_id: str, attempt: int) -> Deferred:
        return self._store.read(partial(reader.committed, run_id=run_id, attempt=attempt))

    def committed_late(self, run_id: str, attempt: int) -> Deferred:
        return self._store.read(partial(reader.committed, run_id=run_id, attempt=attempt, late=True))

    def verify(self, run_id: str) -> Deferred:
        return self._store.read(partial(reader.verify, run_id=run_id))

    def events(self, after: int | None, limit: int) -> Deferred:
        return self._store.read(partial(reader.events, after=after, limit=limit))

    def sessions(self) -> Deferred:
        return self._store.read(reader.sessions)


def _checked(changes: Mapping[str, object]) -> dict[str, object]:
    """A copy. A name that is no column, or a value of another type, is a fault of the caller's code."""
    for name, value in changes.items():
        kind = _CHANGEABLE.get(name, ())
        if value.__class__ is not kind and not isinstance(value, kind):
            raise TypeError(f"a run has no column {name} of type {type(value).__name__}")
    return dict(changes)
