"""What one commit of the history writes: everything of a kind in one statement, whatever the order it was asked in.

Carrying out the same writes twice leaves the database as once: a commit whose answer was lost is simply tried again.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, func, select

from iop.errors import Conflict
from iop.records import BatchRow, RunRecord
from iop.store import bulk, tables
from iop.store.shrinking import shrunk
from iop.store.text import clean
from iop.store.work import Write

IDEMPOTENCY_US = 24 * 3600 * 1_000_000   # how long a key keeps its run

_RUN = tables.names(tables.runs)
_BATCH = tables.names(tables.batches)
_EVENT = tables.names(tables.events)
_AUDIT = tables.names(tables.audit)
_SESSION = tables.names(tables.sessions)


class HistoryWriter:
    """The inside of the history's transactions. Lives on the writer's thread.

    It numbers events and audit lines itself, from where the database ends: a number once given stays through every try.
    """

    def __init__(self) -> None:
        self._event_id = 0
        self._audit_id = 0

    def prepare(self, connection: Connection) -> None:
        """Find where the numbers end."""
        self._event_id = max(self._event_id, _last(connection, tables.events.c.event_id))
        self._audit_id = max(self._audit_id, _last(connection, tables.audit.c.audit_id))

    def carry_out(self, connection: Connection, writes: Sequence[Write]) -> None:
        by_kind: dict[str, list[Write]] = collections.defaultdict(list)
        for write in writes:
            write.error = None
            by_kind[write.kind].append(write)
        for kind, table in (("append", tables.batches), ("late", tables.late)):
            if kind in by_kind:
                self._append(connection, table, by_kind[kind])
        self._runs(connection, [write for write in writes if write.kind in ("create", "update", "append")])
        for kind, method in self._OTHERS.items():
            if kind in by_kind:
                method(self, connection, by_kind[kind])

    # --- batches ---

    def _append(self, connection: Connection, table: Any, writes: list[Write]) -> None:
        rows = [(*row[:4], shrunk(row.packed)) for write in writes for row in write.values]
        if bulk.insert(connection, table, _BATCH, rows) < len(rows):
            self._judge_duplicates(connection, table, writes)

    def _judge_duplicates(self, connection: Connection, table: Any, writes: list[Write]) -> None:
        """The same batch again is no fault; another batch under the same number is one, and is not stored."""
        by_attempt: dict[tuple[str, int], list[tuple[BatchRow, Write]]] = collections.defaultdict(list)
        for write in writes:
            for row in write.values:
                by_attempt[row[:2]].append((row, write))
        for (run_id, attempt), group in by_attempt.items():
            firsts = [row.first_seq for row, _ in group]
            stored = dict(connection.execute(
                select(table.c.first_seq, table.c.last_seq)
                .where(table.c.run_id == clean(run_id), table.c.attempt == attempt,
                       table.c.first_seq.between(min(firsts), max(firsts)))).all())
            for row, write in group:
                first, last = row.first_seq, row.last_seq
                if stored.get(first) != last:
                    write.error = Conflict(f"Events {attempt}.{first} to {attempt}.{last} of run {run_id} are not those "
                                           f"that are stored ({attempt}.{first} to {attempt}.{stored.get(first)}).")

    # --- runs ---

    def _runs(self, connection: Connection, writes: Sequence[Write]) -> None:
        """New runs in one statement, together with what already changed of them; then the changes of the others."""
        created: dict[str, dict[str, object]] = {}
        changed: dict[str, dict[str, object]] = {}
        keys: dict[tuple[str, str], RunRecord] = {}
        for write in writes:
            if write.kind == "create":
                record = write.values
                write.result = self._earlier(connection, record, keys) or record
                if write.result is record:
                    created[record.run_id] = msgspec.structs.asdict(record)
                continue
            if write.error is None:
                told = [write.values] if write.kind == "update" else [(row.run_id, row.changes) for row in write.values]
                for run_id, changes in told:
                    if changes:
                        changed.setdefault(run_id, {}).update(changes)
        self._create(connection, created, changed)
        self._change(connection, changed)

    def _create(self, connection: Connection, created: dict[str, dict[str, object]],
                changed: dict[str, dict[str, object]]) -> None:
        rows = [tuple((values | changed.get(run_id, {}))[name] for name in _RUN) for run_id, values in created.items()]
        if rows and bulk.insert(connection, tables.runs, _RUN, rows) == len(rows):
            for run_id in created:
                changed.pop(run_id, None)

    def _change(self, connection: Connection, changed: dict[str, dict[str, object]]) -> None:
        alike: dict[tuple[str, ...], list[bulk.Row]] = collections.defaultdict(list)
        for run_id, changes in changed.items():
            columns = tuple(sorted(changes))
            alike[columns].append((run_id, *(changes[name] for name in columns)))
        for columns, rows in alike.items():
            bulk.update(connection, tables.runs, ("run_id", *columns), rows)

    def _earlier(self, connection: Connection, record: RunRecord, keys: dict[tuple[str, str], RunRecord]
                 ) -> RunRecord | None:
        """The run that the same principal made under the same key in the last 24 hours; an older one loses the key."""
        if record.idempotency_key is None:
            return None
        key = (str(clean(record.principal)), str(clean(record.idempotency_key)))
        if key not in keys:
            row = connection.execute(select(tables.runs).where(
                tables.runs.c.principal == key[0], tables.runs.c.idempotency_key == key[1])).one_or_none()
            if row is not None:
                keys[key] = RunRecord(**row._mapping)
        found = keys.get(key)
        if found is not None and found.run_id == record.run_id:
            return None
        if found is not None and record.created_us - found.created_us < IDEMPOTENCY_US:
            return found
        if found is not None:
            connection.execute(tables.runs.update().where(tables.runs.c.run_id == found.run_id)
                               .values(idempotency_key=None))
        keys[key] = record
        return None

    # --- the rest ---

    def _events(self, connection: Connection, writes: list[Write]) -> None:
        for write in writes:
            if write.result is None:
                self._event_id += 1
                write.result = self._event_id
        bulk.insert(connection, tables.events, _EVENT, [(write.result, *write.values) for write in writes])

    def _audit(self, connection: Connection, writes: list[Write]) -> None:
        for write in writes:
            if write.result is None:
                self._audit_id += 1
                write.result = self._audit_id
        bulk.insert(connection, tables.audit, _AUDIT, [(write.result, *write.values) for write in writes])

    def _sessions(self, connection: Connection, writes: list[Write]) -> None:
        latest = {write.values.session_id: msgspec.structs.astuple(write.values) for write in writes}
        rows = list(latest.values())
        if bulk.insert(connection, tables.sessions, _SESSION, rows) < len(rows):
            bulk.update(connection, tables.sessions, _SESSION, rows)

    _OTHERS: dict[str, Callable[..., None]] = {"event": _events, "audit": _audit, "session": _sessions}


def _last(connection: Connection, column: Any) -> int:
    return connection.execute(select(func.max(column))).scalar() or 0
