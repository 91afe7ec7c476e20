"""What all tests share: the PostgreSQL server, and no error may be left in a Deferred that nobody looked at."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from twisted.logger import globalLogPublisher

# A busy machine must not fail a property; besides, what fails inside @given leaves pytest-twisted in a state in which every
# test behind it fails too.
settings.register_profile("iop", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("iop")

pytest_plugins = ["tests.postgres", "tests.real.llama"]


def pytest_collection_finish() -> None:
    """What was imported so far lives as long as the session: later collections need not walk it (30 ms a test)."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def frozen() -> Iterator[None]:
    """What has outlived a module is left out of the collections behind it, which would take 0.1 s a test in the end."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_unhandled_errors(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves an unhandled error in a Deferred; those appear only when the Deferred is collected."""
    if request.node.get_closest_marker("unhandled_errors_allowed"):
        yield
        return
    left: list[str] = []

    def observe(event: dict) -> None:
        if event.get("log_namespace") == "twisted.internet.defer" and "log_failure" in event and "debugInfo" in event:
            left.append(event["log_failure"].getTraceback())

    globalLogPublisher.addObserver(observe)
    try:
        yield
        gc.collect()
    finally:
        globalLogPublisher.removeObserver(observe)
    if left:
        pytest.fail("Unhandled error in Deferred:\n" + "\n".join(left), pytrace=False)
