"""Histories on both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_twisted
from twisted.internet import reactor

from iop.store.history import History


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "postgresql":
        return request.getfixturevalue("postgresql_url")
    return f"sqlite:///{tmp_path}/history.db"


@pytest_twisted.async_yield_fixture
async def history(url: str) -> AsyncIterator[History]:
    """One that is open."""
    store = History(url, reactor)
    await store.open()
    yield store
    await store.close()
