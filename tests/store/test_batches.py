"""Batches of events in the history: whole, in order, once."""

from __future__ import annotations

import pytest
from pytest_twisted import ensureDeferred
from twisted.internet import defer

from iop.errors import Conflict
from iop.records import BatchRow
from iop.runs import START, EventId, new_run_id
from tests.store.conftest import a_run, rows_of


@ensureDeferred
async def test_batches_come_back_whole_and_in_order(history) -> None:
    run_id = new_run_id()
    rows = [(1, 1, 3, b"a" * 10), (1, 4, 4, b"b" * 10), (1, 5, 9, b"c" * 10), (2, 1, 1, b"d" * 10)]
    await defer.gatherResults([history.append([BatchRow(run_id, *row)]) for row in rows])
    await history.append([BatchRow(new_run_id(), 1, 1, 1, b"of another run")])

    async def behind(attempt: int, seq: int, limit: int = 1000) -> bytes:
        return b"".join(packed[:1] for packed in await history.batches(run_id, EventId(attempt, seq), limit))

    assert await behind(0, 0) == b"abcd"
    assert await behind(1, 2) == b"abcd"       # the first begins before, for the reader to trim
    assert await behind(1, 3) == b"bcd"
    assert await behind(1, 4) == b"cd"
    assert await behind(1, 8) == b"cd"
    assert await behind(1, 9) == b"d"
    assert await behind(1, 100) == b"d"
    assert await behind(2, 1) == b""
    assert await behind(0, 0, 1) == b"a"
    assert await behind(0, 0, 10) == b"a"
    assert await behind(0, 0, 11) == b"ab"
    assert await history.committed(run_id, 1) == 9
    assert await history.committed(run_id, 2) == 1
    assert await history.committed(run_id, 3) == 0


@ensureDeferred
async def test_many_batches_come_in_pages(history) -> None:
    run_id = new_run_id()
    count = 1000
    await defer.gatherResults([history.append([BatchRow(run_id, 1, seq, seq, b"%06d" % seq)])
                               for seq in range(1, count + 1)])
    found, after = [], START
    while page := await history.batches(run_id, after, 6 * 300):
        found += page
        after = EventId(1, int(page[-1]))
    assert found == [b"%06d" % seq for seq in range(1, count + 1)]


@ensureDeferred
async def test_a_batch_may_be_a_megabyte(history) -> None:
    run_id = new_run_id()
    packed = bytes(range(256)) * 4096
    await defer.gatherResults([history.append([BatchRow(run_id, 1, seq, seq, packed)]) for seq in range(1, 6)])
    assert await history.batches(run_id, START, 2 * len(packed)) == [packed] * 2


@ensureDeferred
async def test_the_same_batch_again_is_dropped(history) -> None:
    run_id = new_run_id()
    await defer.gatherResults([history.append([BatchRow(run_id, 1, 1, 2, b"x")]) for _ in range(2)])
    await history.append([BatchRow(run_id, 1, 1, 2, b"x")])
    assert await history.batches(run_id, START, 100) == [b"x"]


@ensureDeferred
async def test_another_batch_under_the_same_number_is_a_conflict_and_harms_no_other(history) -> None:
    run_id = new_run_id()
    record = a_run(run_id)
    await history.create_run(record)
    await history.append([BatchRow(run_id, 1, 1, 2, b"x")])
    wrong = history.append([BatchRow(run_id, 1, 1, 5, b"y", {"state": "failed"})])
    right = history.append([BatchRow(run_id, 1, 3, 3, b"z", {"attempt": 1})])
    with pytest.raises(Conflict):
        await wrong
    await right
    assert await history.batches(run_id, START, 100) == [b"x", b"z"]
    stored = await history.run(run_id)
    assert (stored.state, stored.attempt) == ("queued", 1)


@ensureDeferred
async def test_one_write_may_have_batches_of_many_runs(history) -> None:
    records = [a_run(), a_run()]
    for record in records:
        await history.create_run(record)
    one, other = (record.run_id for record in records)
    await history.append([BatchRow(one, 1, 1, 2, b"a"), BatchRow(other, 1, 1, 1, b"b", {"state": "running"}),
                              BatchRow(one, 1, 3, 3, b"c", {"attempt": 1})])
    assert [await history.batches(run_id, START, 100) for run_id in (one, other)] == [[b"a", b"c"], [b"b"]]
    assert ((await history.run(one)).attempt, (await history.run(other)).state) == (1, "running")


@ensureDeferred
async def test_a_conflict_among_many_batches_keeps_the_others(history) -> None:
    run_id, other = new_run_id(), new_run_id()
    await history.append([BatchRow(run_id, 1, 1, 2, b"x")])
    with pytest.raises(Conflict):
        await history.append([BatchRow(run_id, 1, 1, 5, b"y"), BatchRow(other, 1, 1, 1, b"z")])
    assert [await history.batches(one, START, 100) for one in (run_id, other)] == [[b"x"], [b"z"]]


@ensureDeferred
async def test_a_batch_and_the_end_of_its_run_are_one_transaction(history) -> None:
    record = a_run()
    await history.create_run(record)
    changes = {"state": "completed", "ended_us": 9, "outcome": b"\x00o"}
    await history.append([BatchRow(record.run_id, 1, 1, 1, b"x", changes)])
    stored = await history.run(record.run_id)
    assert (stored.state, stored.ended_us, stored.outcome) == ("completed", 9, b"\x00o")


@ensureDeferred
async def test_late_batches_are_kept_apart(history, url) -> None:
    run_id = new_run_id()
    await history.append_late(run_id, 1, 1, 2, b"late")
    await history.append_late(run_id, 1, 1, 2, b"late")
    assert await history.batches(run_id, START, 100) == []
    assert rows_of(url, "SELECT run_id, last_seq, packed FROM late") == [(run_id, 2, b"late")]


@ensureDeferred
async def test_what_can_never_be_stored_fails_alone(history) -> None:
    run_id = new_run_id()
    writes = [history.append([BatchRow(run_id, 1, seq, seq, b"x")]) for seq in (1, 2)]
    bad = history.append([BatchRow(run_id, 1, 1 << 70, 1 << 70, b"too far")])
    writes += [history.append([BatchRow(run_id, 1, seq, seq, b"x")]) for seq in (3, 4)]
    worse = history.update_run(run_id, {"created_us": 1 << 70})
    with pytest.raises(Conflict):
        await bad
    with pytest.raises(Conflict):
        await worse
    await defer.gatherResults(writes)
    assert await history.committed(run_id, 1) == 4
    assert history.available
    assert history.backlog() == 0
