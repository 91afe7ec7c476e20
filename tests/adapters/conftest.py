"""Fixtures of the adapters' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import pytest_twisted

from tests.adapters.upstream import Upstream


@pytest.fixture()
def upstream() -> Iterator[Upstream]:
    listening = Upstream()
    yield listening
    pytest_twisted.blockon(listening.stop())
