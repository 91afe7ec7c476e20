"""How long the hunt for a run's processes goes on, on a machine where processes are started without pause."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess

import pytest

from iop.node import processes


@pytest.fixture
def busy(monkeypatch) -> list[int]:
    """A machine on which every look at /proc finds one more process, gone by the time that it is looked at."""
    looks: list[int] = []
    numbers = itertools.count(2 ** 22 + 1)          # above every pid (proc(5), pid_max)
    strangers: list[str] = []
    listdir = os.listdir

    def listed(path: str) -> list[str]:
        looks.append(1)
        strangers.append(str(next(numbers)))
        return [*listdir(path), *strangers]

    monkeypatch.setattr(os, "listdir", listed)
    return looks


@pytest.fixture
def marked():
    process = subprocess.Popen(["sleep", "60"], env={"PATH": os.defpath, "IOP_RUN_ID": "a" * 32})
    yield process
    process.kill()
    process.wait()


def test_the_hunt_ends_when_only_strangers_are_new(busy, marked) -> None:
    [found] = processes.members(b"IOP_RUN_ID=" + b"a" * 32, {}, number=signal.SIGKILL)
    assert found.pid == marked.pid and len(busy) == processes.QUIET + 1
    assert marked.wait(10) == -signal.SIGKILL


def test_who_only_looks_has_the_answer_at_once(busy, marked) -> None:
    assert [one.pid for one in processes.members(b"IOP_RUN_ID=" + b"a" * 32, {})] == [marked.pid]
    assert len(busy) == 1
    busy.clear()
    assert processes.members(b"IOP_RUN_ID=" + b"b" * 32, {}) == []
    assert len(busy) == processes.QUIET
