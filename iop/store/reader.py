"""What the history is asked. Each reading yields between pages of a few milliseconds, so that commits go first."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, and_, or_, select, text

from iop.errors import InvalidRequest, NoSuchRun
from iop.proto import node_pb2
from iop.records import RunQuery, RunRecord, SessionRecord
from iop.runs import OPEN_STATES, EventId
from iop.store import tables
from iop.store.shrinking import whole
from iop.store.text import clean
from iop.store.work import Pages
from iop.wholeness import Checker

PAGE_BATCHES = 128
PAGE_LATE = 8                        # batches of up to a megabyte each, whose sizes nobody has asked first
PAGE_RUNS = 50
VERIFY_BYTES = 64 * 1024             # read at once to verify a run; one batch may be more
LARGEST_LIMIT = 1000                 # runs or events in one answer

_runs = tables.runs
_run_columns = tuple(_runs.columns)
# A list of runs leaves the requests out: they may be megabytes each.
_listed_columns = tuple(column for column in _runs.columns if column.name != "request")

# Whole batches from the one that holds the first event wanted, until their sum, as they are stored, passes the limit. Sizes
# come first, from the rows' heads; only what may be wanted is then read.
_BATCHES = text("""
    WITH page AS (
        SELECT attempt, first_seq, length(packed) AS size FROM batches
        WHERE run_id = :run_id AND (attempt, first_seq) > (:attempt, :first_seq)
        ORDER BY attempt, first_seq LIMIT :count),
    sums AS (SELECT attempt, first_seq, sum(size) OVER (ORDER BY attempt, first_seq) - size AS ahead FROM page)
    SELECT b.attempt, b.first_seq, b.last_seq, b.packed FROM sums JOIN batches b
    ON b.run_id = :run_id AND b.attempt = sums.attempt AND b.first_seq = sums.first_seq
    WHERE sums.ahead < :limit ORDER BY b.attempt, b.first_seq
""")
_START = text("""
    SELECT first_seq, last_seq FROM batches WHERE run_id = :run_id AND attempt = :attempt AND first_seq <= :seq
    ORDER BY first_seq DESC LIMIT 1
""")
_COMMITTED = text("""
    SELECT last_seq FROM batches WHERE run_id = :run_id AND attempt = :attempt ORDER BY first_seq DESC LIMIT 1
""")
_COMMITTED_LATE = text("""
    SELECT last_seq FROM late WHERE run_id = :run_id AND attempt = :attempt ORDER BY first_seq DESC LIMIT 1
""")


def run(connection: Connection, run_id: str) -> Pages:
    yield
    row = connection.execute(select(*_run_columns).where(_runs.c.run_id == clean(run_id))).one_or_none()
    if row is None:
        raise NoSuchRun()
    return RunRecord(**row._mapping)


def runs(connection: Connection, query: RunQuery) -> Pages:
    """([RunRecord without its request], next cursor), newest first."""
    limit = max(1, min(query.limit, LARGEST_LIMIT))
    statement = _search(query)
    before = _read_cursor(query.cursor)
    found: list[RunRecord] = []
    while len(found) <= limit:
        page = statement.limit(min(PAGE_RUNS, limit + 1 - len(found)))
        if before:
            page = page.where(_runs.c.run_id < before)
        rows = connection.execute(page).all()
        found += [RunRecord(**row._mapping, request=b"") for row in rows]
        if len(rows) < PAGE_RUNS:
            break
        before = rows[-1].run_id
        yield
    return found[:limit], _make_cursor(found[limit - 1].run_id) if len(found) > limit else ""


def _search(query: RunQuery) -> Any:
    statement = select(*_listed_columns).order_by(_runs.c.run_id.desc())
    for name in ("state", "adapter", "target", "node_id", "session_id", "principal"):
        if value := getattr(query, name):
            statement = statement.where(_runs.c[name] == clean(value))
    if query.since_us:
        statement = statement.where(_runs.c.created_us >= query.since_us)
    return statement


def _make_cursor(run_id: str) -> str:
    return base64.urlsafe_b64encode(f"r{run_id}".encode()).decode("ascii").rstrip("=")


def _read_cursor(cursor: str) -> str:
    if not cursor:
        return ""
    try:
        plain = base64.b64decode(cursor.encode() + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError):
        plain = ""
    if not plain.startswith("r"):
        raise InvalidRequest("The cursor is not one that this list gave.")
    return str(clean(plain[1:]))


def open_runs(connection: Connection) -> Pages:
    """[RunRecord] of all that have not ended, oldest first, with their requests."""
    found: list[RunRecord] = []
    after = ""
    while True:
        rows = connection.execute(
            select(*_run_columns).where(_runs.c.state.in_(OPEN_STATES), _runs.c.run_id > after)
            .order_by(_runs.c.run_id).limit(PAGE_RUNS)).all()
        found += [RunRecord(**row._mapping) for row in rows]
        if len(rows) < PAGE_RUNS:
            return found
        after = rows[-1].run_id
        yield


def batches(connection: Connection, run_id: str, after: EventId, limit_bytes: int) -> Pages:
    """[packed] behind `after`, in order; one at least when there is one."""
    run_id = str(clean(run_id))
    attempt, first_seq = after.attempt, _place(connection, run_id, after)
    found: list[bytes] = []
    left = max(limit_bytes, 1)
    while left > 0:
        yield
        rows = connection.execute(_BATCHES, {"run_id": run_id, "attempt": attempt, "first_seq": first_seq,
                                             "count": PAGE_BATCHES, "limit": left}).all()
        left = _take(rows, found, left)
        if len(rows) < PAGE_BATCHES:
            break
        attempt, first_seq = rows[-1].attempt, rows[-1].first_seq
    return found


def late(connection: Connection, run_id: str, after: EventId, limit_bytes: int) -> Pages:
    """[packed] of what is kept apart and ends behind `after`, in order; one at least when there is one."""
    yield
    table = tables.late
    found: list[bytes] = []
    rows = connection.execute(select(table.c.packed).where(
            table.c.run_id == clean(run_id),
            or_(table.c.attempt > after.attempt, and_(table.c.attempt == after.attempt, table.c.last_seq > after.seq)))
            .order_by(table.c.attempt, table.c.first_seq).limit(PAGE_LATE)).all()
    _take(rows, found, max(limit_bytes, 1))
    return found


def _take(rows: Sequence[Any], found: list[bytes], left: int) -> int:
    """Add the batches of a page until `left` bytes are passed; gives what is left of them then."""
    for row in rows:
        if left <= 0:
            break
        found.append(whole(row.packed))
        left -= len(found[-1])
    return left


def _place(connection: Connection, run_id: str, after: EventId) -> int:
    """The first_seq behind which to read: of the last batch that is wholly seen, or just before the one seen in part."""
    row = connection.execute(_START, {"run_id": run_id, "attempt": after.attempt, "seq": after.seq + 1}).one_or_none()
    if row is None:
        return after.seq
    return row.first_seq if row.last_seq <= after.seq else row.first_seq - 1


def verify(connection: Connection, run_id: str) -> Pages:
    """The Findings on a run, out of all its batches; a page at a time, so that a run of any size is never in memory."""
    record = yield from run(connection, run_id)
    checker = Checker(record)
    attempt = first_seq = 0
    while True:
        rows = connection.execute(_BATCHES, {"run_id": record.run_id, "attempt": attempt, "first_seq": first_seq,
                                             "count": PAGE_BATCHES, "limit": VERIFY_BYTES}).all()
        for row in rows:
            checker.batch(row.attempt, row.first_seq, row.last_seq, whole(row.packed))
            yield
        if not rows:
            break
        attempt, first_seq = rows[-1].attempt, rows[-1].first_seq
    late = tables.late
    for row in connection.execute(select(late.c.attempt, late.c.first_seq, late.c.last_seq).where(
            late.c.run_id == record.run_id).order_by(late.c.attempt, late.c.first_seq)).all():
        checker.late(*row)
    return checker.findings()


def committed(connection: Connection, run_id: str, attempt: int, late: bool = False) -> Pages:
    yield
    statement = _COMMITTED_LATE if late else _COMMITTED
    return connection.execute(statement, {"run_id": clean(run_id), "attempt": attempt}).scalar() or 0


def events(connection: Connection, after: int | None, limit: int) -> Pages:
    """[EdgeNodeEvent] in order, each with its event_id."""
    yield
    limit = max(1, min(limit, LARGEST_LIMIT))
    table = tables.events
    statement = select(table.c.event_id, table.c.packed).limit(limit)
    if after is None:
        rows = connection.execute(statement.order_by(table.c.event_id.desc())).all()[::-1]
    else:
        rows = connection.execute(statement.where(table.c.event_id > after).order_by(table.c.event_id)).all()
    found = []
    for row in rows:
        event = node_pb2.EdgeNodeEvent.FromString(row.packed)
        event.event_id = row.event_id
        found.append(event)
    return found


def sessions(connection: Connection) -> Pages:
    """[SessionRecord], latest used first."""
    yield
    table = tables.sessions
    return [SessionRecord(**row._mapping)
            for row in connection.execute(select(table).order_by(table.c.used_us.desc())).all()]
