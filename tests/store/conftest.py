"""Histories on both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from sqlalchemy import Connection, create_engine
from twisted.internet import reactor

from iop.records import RunRecord
from iop.runs import new_run_id
from iop.store import engine, store, worker
from iop.store.engine import make_engine, parse_url
from iop.store.history import History
from iop.store.migrate import migrate
from iop.store.work import Pages


def a_run(run_id: str = "", **fields: Any) -> RunRecord:
    """A row of a run that waits."""
    values = {"state": "queued", "adapter": "mock", "target": "echo", "created_us": 1_000_000} | fields
    return RunRecord(run_id=run_id or new_run_id(), **values)


def rows_of(url: str, statement: str) -> list[tuple[Any, ...]]:
    """The rows of one statement in another connection."""
    other = create_engine(url)
    with other.begin() as connection:
        result = connection.exec_driver_sql(statement)
        rows = [tuple(row) for row in result] if result.returns_rows else []
    other.dispose()
    return rows


def ask(reading: Pages) -> Any:
    """What a reading finds."""
    while True:
        try:
            next(reading)
        except StopIteration as end:
            return end.value


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "postgresql":
        return request.getfixturevalue("postgresql_url")
    return f"sqlite:///{tmp_path}/history.db"


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    """To an empty history."""
    with make_engine(parse_url(url)).connect() as connection:
        migrate(connection, "history")
        yield connection


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same waits for a database that is away, shorter."""
    monkeypatch.setattr(store, "PATIENCE_S", 0.5)
    monkeypatch.setattr(worker, "LAST_RETRY_S", 0.1)
    monkeypatch.setattr(worker, "CLOSE_PATIENCE_S", 0.5)
    monkeypatch.setattr(engine, "_SQLITE_SETTINGS", (*engine._SQLITE_SETTINGS, "PRAGMA busy_timeout=50"))


@pytest_twisted.async_yield_fixture
async def history(url: str) -> AsyncIterator[History]:
    """One that is open."""
    opened = History(url, reactor)
    await opened.open()
    yield opened
    await opened.close()
