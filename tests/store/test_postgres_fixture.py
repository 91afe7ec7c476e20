"""The fixture of a real PostgreSQL, and the watch over Deferreds."""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.internet import defer

pytest_plugins = ["pytester"]


def test_a_fresh_database_is_empty(postgresql, postgresql_url) -> None:
    rows = postgresql.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", postgresql_url)
    assert rows == [(0,)]


@pytest.mark.unhandled_errors_allowed
def test_a_marked_test_may_leave_an_error() -> None:
    defer.fail(ValueError("left"))


def test_an_unmarked_test_may_not(pytester) -> None:
    watch = Path(__file__).parents[1].joinpath("conftest.py").read_text()
    pytester.makeconftest(watch.replace('pytest_plugins = ["tests.postgres"]', ""))
    pytester.makepyfile("from twisted.internet import defer\ndef test_it(): defer.fail(ValueError('left'))")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*ValueError*left*"])
