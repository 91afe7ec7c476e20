"""Histories on both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from sqlalchemy import Connection
from twisted.internet import reactor

from iop.store.engine import make_engine, parse_url
from iop.store.history import History
from iop.store.migrate import migrate
from iop.store.work import Pages


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


@pytest_twisted.async_yield_fixture
async def history(url: str) -> AsyncIterator[History]:
    """One that is open."""
    store = History(url, reactor)
    await store.open()
    yield store
    await store.close()
