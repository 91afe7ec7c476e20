"""A node's own record of its runs, in an SQLite file: it answers for its machine when the edge is gone."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import Connection, select
from twisted.internet.defer import Deferred

from iop.events import now_us
from iop.store import bulk, tables
from iop.store.engine import file_url
from iop.store.statement import execute
from iop.store.store import Store
from iop.store.text import clean
from iop.store.work import Write

_table = tables.node_runs
_ACCEPTED = ("run_id", "attempt", "adapter", "target", "accepted_us", "request", "outcome", "target_config", "limits")
_ENDED = ("run_id", "attempt", "ended_us", "kind", "outcome")
_CHANGE = f"UPDATE {_table.name} SET pid = ?, start_ticks = ?, boot_id = ? WHERE run_id = ? AND attempt = ?"  # noqa: S608
END_WAIT_S = 0.05          # of an ending, for a commit that it can go with: until then the spool has it


class NodeRun(msgspec.Struct, kw_only=True):
    """One attempt that this node accepted. Times are Unix microseconds, 0 for not yet."""

    run_id: str
    attempt: int
    adapter: str
    target: str
    accepted_us: int
    ended_us: int = 0
    kind: str = ""             # of the ending: completed | failed | cancelled | unknown
    outcome: bytes = b""       # the packed Outcome
    pid: int = 0               # of its program; with start_ticks and boot_id, which process that is
    start_ticks: int = 0
    boot_id: str = ""


class OpenRun(NodeRun, kw_only=True):
    """One that has not ended, with all that it takes to go on with it: what was asked, and what it was to run under."""

    request: bytes             # the packed RunRequest
    target_config: bytes | None      # the packed TargetConfig that it was accepted under; None: by an older version
    limits: bytes | None       # the packed Limits in force


_columns = [_table.c[name] for name in NodeRun.__struct_fields__]
_open_columns = [_table.c[name] for name in OpenRun.__struct_fields__]


class NodeRecord:
    """The record in the file `path`. Writes are durable when their Deferred fires; failures are HistoryUnavailable.

    While the disk takes nothing, accept() and program_started() fail after 5 s; end() waits until it does.
    """

    def __init__(self, path: str, reactor: Any) -> None:
        self._store = Store(file_url(path), "record", reactor, lambda connection: None, _carry_out)

    @property
    def available(self) -> bool:
        """Whether the last commit went through."""
        return self._store.available

    def open(self) -> Deferred:
        """Make or migrate the file; fires when ready."""
        return self._store.open()

    def close(self) -> Deferred:
        """Commit what is queued, then let go."""
        return self._store.close()

    def accept(self, run_id: str, attempt: int, adapter: str, target: str, request: bytes, target_config: bytes = b"",
               limits: bytes = b"") -> Deferred:
        """Note that an attempt is taken on; fires with False when it is known already."""
        row = (run_id, attempt, adapter, target, now_us(), request, b"", target_config, limits)
        return self._store.write_soon("accept", row, withdraw=True)

    def program_started(self, run_id: str, attempt: int, pid: int, start_ticks: int, boot_id: str) -> Deferred:
        """Note which process carries it out."""
        return self._store.write_soon("change", (pid, start_ticks, boot_id, run_id, attempt))

    def end(self, run_id: str, attempt: int, kind: str, outcome: bytes) -> Deferred:
        """Note its ending; of two, the first counts. It goes with the next acceptance, or by itself before long."""
        return self._store.write("end", (run_id, attempt, now_us(), kind, outcome), wait_s=END_WAIT_S)

    def open_runs(self) -> Deferred:
        """Fires with the OpenRuns, oldest first."""
        return self._store.read(_open_runs)

    def recent(self, limit: int) -> Deferred:
        """Fires with the latest NodeRuns, newest first."""
        return self._store.read(partial(_recent, limit=limit))


def _carry_out(connection: Connection, writes: Sequence[Write]) -> None:
    """A statement for all of one kind: nothing of an attempt comes before its acceptance."""
    accepted = [write for write in writes if write.kind == "accept"]
    if accepted:
        _accept(connection, accepted)
    for write in writes:
        if write.kind == "change":
            execute(connection, _CHANGE, [clean(value) for value in write.values])
    ended = {write.values[:2]: write.values for write in reversed(writes) if write.kind == "end"}    # the first counts
    if ended:
        bulk.update(connection, _table, _ENDED, list(ended.values()), keys=2, only="ended_us")


def _accept(connection: Connection, writes: Sequence[Write]) -> None:
    first = {write.values[:2]: write for write in reversed(writes)}
    count = bulk.insert(connection, _table, _ACCEPTED, [write.values for write in first.values()])
    for write in writes:
        write.result = first[write.values[:2]] is write and (count == len(first) or _is_its_own(connection, write))


def _is_its_own(connection: Connection, write: Write) -> bool:
    """Whether the attempt's row was made by this acceptance, and not by an earlier one."""
    run_id, attempt, accepted_us = write.values[0], write.values[1], write.values[4]
    found = select(_table.c.accepted_us).where(_table.c.run_id == clean(run_id), _table.c.attempt == attempt)
    return bool(connection.execute(found).scalar() == accepted_us)


def _open_runs(connection: Connection) -> Generator[None, None, list[OpenRun]]:
    yield
    statement = select(*_open_columns).where(_table.c.ended_us == 0).order_by(_table.c.accepted_us)
    return [OpenRun(**row._mapping) for row in connection.execute(statement)]


def _recent(connection: Connection, limit: int) -> Generator[None, None, list[NodeRun]]:
    yield
    statement = select(*_columns).order_by(_table.c.accepted_us.desc(), _table.c.run_id.desc()).limit(limit)
    return [NodeRun(**row._mapping) for row in connection.execute(statement)]
