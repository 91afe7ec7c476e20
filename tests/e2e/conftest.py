"""`iop up` in a folder of its own, for one test or for a module."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.up import COUNT, Up


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture
def bring_up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    """Start an `iop up` with options, on the folder `state`, and wait until it is ready; all are ended after the test."""
    started: list[Up] = []

    def start(*options: str, state: str = "state", wait: bool = True) -> Up:
        up = Up(tmp_path / state, *options)
        started.append(up)
        return up.wait_ready() if wait else up

    yield start
    for up in started:
        try:
            up.stop()
        except subprocess.TimeoutExpired:
            up.process.kill()
            raise


@pytest.fixture(scope="module")
def shared_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One `iop up` for the tests of a module that only use it."""
    up = Up(tmp_path_factory.mktemp("up") / "state", "--cli", "hello=echo {prompt}", "--cli", "count=" + COUNT,
            "--cli", "fails=sh -c 'echo no >&2; exit 3'", "--cli", "cat=cat",
            "--cli", "escape=printf '\\033]0;owned\\007ok\\n'")
    yield up.wait_ready()
    assert up.stop() == 0, up.words()
