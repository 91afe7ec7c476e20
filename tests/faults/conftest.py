"""Whatever starts a world is marked e2e: real processes on loopback."""

from __future__ import annotations

from pathlib import Path

import pytest

WORLDS = ("test_chaos.py", "test_cancels.py", "test_mutants.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent and item.path.name in WORLDS:
            item.add_marker(pytest.mark.e2e)
