"""Readings against a model: whatever batches there are, whoever asks, from wherever."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.dialects import sqlite

from iop.errors import NoSuchRun
from iop.events import ending, output
from iop.proto.link_pb2 import Frame
from iop.proto.run_pb2 import EventBatch, Outcome, Totals
from iop.records import BatchRow, RunQuery, RunRecord
from iop.runs import EventId
from iop.store import bulk, reader, tables
from iop.store.engine import file_url, make_engine
from iop.store.migrate import migrate
from iop.store.work import Write
from iop.store.writer import HistoryWriter
from tests.store.conftest import ask

# A run: for each attempt, the lengths (in events) and sizes (in bytes) of its batches.
RUNS = st.lists(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 40)), max_size=8), min_size=1, max_size=3)
PLACES = st.tuples(st.integers(0, 4), st.integers(0, 45))


def laid_out(run) -> list[tuple[int, int, int, bytes]]:
    rows = []
    for attempt, batches in enumerate(run, 1):
        seq = 1
        for index, (events, size) in enumerate(batches):
            rows.append((attempt, seq, seq + events - 1, b"%d.%d:" % (attempt, index) + b"x" * size))
            seq += events
    return rows


def test_batches_behind_any_place_are_those_that_hold_what_comes_behind_it(connection, monkeypatch) -> None:
    monkeypatch.setattr(reader, "PAGE_BATCHES", 3)
    count = 0

    @settings(max_examples=150, deadline=None, database=None)
    @given(RUNS, PLACES, st.integers(0, 200))
    def check(run, place, limit) -> None:
        nonlocal count
        count += 1
        run_id, rows = f"run{count}", laid_out(run)
        bulk.insert(connection, tables.batches, tables.names(tables.batches), [(run_id, *row) for row in rows])
        bulk.insert(connection, tables.batches, tables.names(tables.batches), [(run_id + "x", 1, 1, 9, b"another's")])
        after = EventId(*place)
        behind = [row for row in rows if EventId(row[0], row[2]) > after]
        found = ask(reader.batches(connection, run_id, after, limit))
        assert found == [row[3] for row in behind[:len(found)]]
        assert bool(found) == bool(behind)
        assert sum(map(len, found[:-1])) < max(limit, 1)
        if len(found) < len(behind):
            assert sum(map(len, found)) >= limit
        for attempt in range(5):
            last = max((row[2] for row in rows if row[0] == attempt), default=0)
            assert ask(reader.committed(connection, run_id, attempt)) == last

    check()


def test_a_reader_that_follows_the_last_event_sees_each_batch_once(connection) -> None:
    count = 0

    @settings(max_examples=60, deadline=None, database=None)
    @given(RUNS, st.integers(1, 100))
    def check(run, limit) -> None:
        nonlocal count
        count += 1
        run_id, rows = f"run{count}", laid_out(run)
        bulk.insert(connection, tables.batches, tables.names(tables.batches), [(run_id, *row) for row in rows])
        ends = {row[3]: EventId(row[0], row[2]) for row in rows}
        found, after = [], EventId(0, 0)
        while page := ask(reader.batches(connection, run_id, after, limit)):
            found += page
            after = ends[page[-1]]
        assert found == [row[3] for row in rows]

    check()


def test_ten_thousand_runs_are_walked_through_page_by_page(connection) -> None:
    names = tables.names(tables.runs)
    defaults = {"attempt": 1, "created_us": 0, "idempotency_key": None, "request": b"r" * 2000, "outcome": b""}

    def row(index: int) -> tuple:
        values = defaults | {"run_id": f"{index:032x}", "state": "failed" if index % 1000 == 0 else "completed"}
        return tuple(values.get(name, 0 if tables.runs.c[name].type.python_type is int else "") for name in names)

    bulk.insert(connection, tables.runs, names, [row(index) for index in range(10_000)])
    for words, expected in (({"limit": 1000}, range(10_000)), ({"limit": 3, "state": "failed"}, range(0, 10_000, 1000))):
        found, cursor = [], ""
        while True:
            page, cursor = ask(reader.runs(connection, RunQuery(cursor=cursor, **words)))
            found += [int(run.run_id, 16) for run in page]
            if not cursor:
                break
        assert found == list(reversed(expected))


@pytest.mark.parametrize("words", [
    {}, {"state": "failed"}, {"adapter": "cli"}, {"target": "t"}, {"node_id": "n"}, {"session_id": "s"}, {"principal": "p"},
    {"target": "t", "adapter": "cli"}])
def test_each_search_walks_an_index_and_sorts_nothing(tmp_path, words) -> None:
    with make_engine(file_url(f"{tmp_path}/x.db")).connect() as connection:
        migrate(connection, "history")
        compiled = reader._search(RunQuery(**words)).limit(50).compile(
            dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True})
        plan = " ".join(row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}"))
    assert "INDEX" in plan
    assert "TEMP B-TREE" not in plan


def test_a_run_is_verified_out_of_all_its_batches_in_pages(connection, monkeypatch) -> None:
    monkeypatch.setattr(reader, "PAGE_BATCHES", 3)
    monkeypatch.setattr(reader, "VERIFY_BYTES", 100)
    run_id, count = "a" * 32, 20
    totals = Totals(events=count, bytes=count, digest=bytes(32))
    events = [output("x") for _ in range(count)] + [ending("failed", Outcome(code="run_timeout", totals=totals))]
    for event in events[:-1]:
        totals.digest = sha256(totals.digest + event.output.encode()).digest()
    events[-1].failed.totals.CopyFrom(totals)
    rows = [BatchRow(run_id, 1, seq, seq, Frame(event_batch=EventBatch(
        run_id=run_id, attempt=1, first_seq=seq, events=[event])).SerializeToString()) for seq, event in enumerate(events, 1)]
    late = [BatchRow(run_id, 1, seq, seq + 2, b"") for seq in (30, 31, 40)]
    writer = HistoryWriter()
    record = RunRecord(run_id=run_id, state="failed", adapter="mock", target="echo", attempt=1, ended_us=1)
    writer.carry_out(connection, [Write("create", record, 0), Write("append", rows, 0), Write("late", late, 0)])
    found = ask(reader.verify(connection, run_id))
    assert (found.whole, found.counted, found.late, found.checked) == (True, totals, 7, "digest")
    with pytest.raises(NoSuchRun):
        ask(reader.verify(connection, "b" * 32))


def test_what_is_kept_apart_is_read_behind_a_place(connection) -> None:
    rows = [BatchRow("r", attempt, first, last, b"%d.%d" % (attempt, first))
            for attempt, first, last in ((1, 3, 5), (1, 4, 8), (2, 1, 2))]
    HistoryWriter().carry_out(connection, [Write("late", rows, 0)])
    told = {place: ask(reader.late(connection, "r", EventId(*place), 1 << 20)) for place in ((0, 0), (1, 5), (1, 8), (2, 2))}
    assert told == {(0, 0): [b"1.3", b"1.4", b"2.1"], (1, 5): [b"1.4", b"2.1"], (1, 8): [b"2.1"], (2, 2): []}
    assert ask(reader.late(connection, "r", EventId(0, 0), 1)) == [b"1.3"]
