"""What tests of servers begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node.house import House


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)
