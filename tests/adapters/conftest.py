"""Fixtures of the adapters' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import pytest_twisted

from tests.adapters.asking import Asked
from tests.adapters.upstream import Upstream


@pytest.fixture()
def upstream() -> Iterator[Upstream]:
    listening = Upstream()
    yield listening
    pytest_twisted.blockon(listening.stop())


@pytest.fixture()
def asked(upstream: Upstream) -> Iterator[Asked]:
    case = Asked(upstream)
    yield case
    if case.run is not None:
        assert not case.clock.getDelayedCalls(), "a deadline is left behind"
        pytest_twisted.blockon(case.run.close())
