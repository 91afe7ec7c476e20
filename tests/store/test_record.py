"""The node's own record of its runs."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest_twisted
from pytest_twisted import ensureDeferred
from twisted.internet import defer, reactor

from iop.store import tables
from iop.store.record import NodeRecord, OpenRun


@pytest_twisted.async_yield_fixture
async def record(tmp_path) -> AsyncIterator[NodeRecord]:
    store = NodeRecord(f"{tmp_path}/runs.db", reactor)
    await store.open()
    yield store
    await store.close()


def test_a_node_run_has_a_column_for_each_field() -> None:
    assert set(OpenRun.__struct_fields__) == set(tables.names(tables.node_runs))


@ensureDeferred
async def test_an_attempt_is_accepted_once(record) -> None:
    answers = await defer.gatherResults([record.accept("r", 1, "cli", "fix", b"q"), record.accept("r", 1, "cli", "fix", b"q"),
                                         record.accept("r", 2, "cli", "fix", b"q")])
    assert answers == [True, False, True]
    assert await record.accept("r", 2, "cli", "fix", b"q") is False


@ensureDeferred
async def test_an_open_run_knows_its_process(record) -> None:
    await record.accept("r\x00\ud800", 1, "cli", "fix", b"q")
    await record.accept("s", 1, "mock", "echo", b"q", b"config", b"limits")
    await record.program_started("r\x00\ud800", 1, 4711, 99, "boot")
    first, second = await record.open_runs()
    assert (first.pid, first.start_ticks, first.boot_id, first.adapter) == (4711, 99, "boot", "cli")
    assert (second.run_id, second.pid) == ("s", 0)
    assert (second.request, second.target_config, second.limits) == (b"q", b"config", b"limits")
    assert first.accepted_us > 1_700_000_000_000_000


@ensureDeferred
async def test_the_first_of_two_endings_counts(record) -> None:
    await record.accept("r", 1, "cli", "fix", b"q")
    await record.end("r", 1, "completed", b"o")
    await record.end("r", 1, "failed", b"p")
    assert await record.open_runs() == []
    [run] = await record.recent(10)
    assert (run.kind, run.outcome) == ("completed", b"o")
    assert run.ended_us >= run.accepted_us


@ensureDeferred
async def test_the_record_outlives_its_process_and_is_private(record, tmp_path) -> None:
    for number in range(30):
        await record.accept(f"r{number:02}", 1, "cli", "fix", b"q")
    await record.close()
    assert os.stat(tmp_path / "runs.db").st_mode & 0o777 == 0o600
    again = NodeRecord(f"{tmp_path}/runs.db", reactor)
    await again.open()
    assert [run.run_id for run in await again.recent(3)] == ["r29", "r28", "r27"]
    assert len(await again.open_runs()) == 30
    await again.close()


@ensureDeferred
async def test_of_many_acceptances_at_once_each_hears_whether_it_is_the_first(record) -> None:
    await record.accept("b", 1, "cli", "hello", b"before")
    asked = [record.accept(run, 1, "cli", "hello", b"now") for run in "abc"]
    endings = [record.end(run, 1, "completed", b"") for run in "ca"]
    assert [await fresh for fresh in asked] == [True, False, True]
    for ending in endings:
        await ending
    assert [(run.run_id, run.request) for run in await record.open_runs()] == [("b", b"before")]
