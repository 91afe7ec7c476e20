"""What an earlier instance left is found and ended, and nothing else is."""

from __future__ import annotations

import os
import signal
import subprocess
from types import SimpleNamespace

import pytest
import pytest_twisted
from twisted.internet import reactor

from iop.node import processes
from iop.node.orphans import end_orphans

MARKER = "IOP_NODE=test.0123456789abcdef"


def sleeper(script: str = "exec sleep 300", **env: str) -> subprocess.Popen:
    return subprocess.Popen(["/bin/sh", "-c", script], env={"PATH": os.environ["PATH"], **env}, start_new_session=True)


@pytest.fixture
def started():
    found: list[subprocess.Popen] = []
    yield found
    for process in found:
        process.kill()
        process.wait()


def recorded(process: subprocess.Popen, **more) -> SimpleNamespace:
    return SimpleNamespace(**{"pid": process.pid, "start_ticks": processes.start_ticks(process.pid),
                              "boot_id": processes.boot_id()} | more)


@pytest_twisted.ensureDeferred
async def test_marked_processes_are_ended_also_when_they_ignore_term(started) -> None:
    name, _, value = MARKER.partition("=")
    started += [sleeper(**{name: value}), sleeper("trap '' TERM; while :; do sleep 1; done", **{name: value})]
    bystander = sleeper(IOP_NODE="other.0123456789abcdef")
    started.append(bystander)
    assert await end_orphans(reactor, MARKER, []) == 0
    assert [process.wait(5) for process in started[:2]] == [-signal.SIGTERM, -signal.SIGKILL]
    assert bystander.poll() is None


@pytest_twisted.ensureDeferred
async def test_recorded_processes_are_ended_only_when_they_are_the_same(started) -> None:
    same, other_start, other_boot = (sleeper() for _ in range(3))
    started += [same, other_start, other_boot]
    rows = [recorded(same), recorded(other_start, start_ticks=1), recorded(other_boot, boot_id="x"), recorded(same, pid=0)]
    assert await end_orphans(reactor, MARKER, rows) == 0
    assert same.wait(5) == -signal.SIGTERM
    assert (other_start.poll(), other_boot.poll()) == (None, None)


def test_this_process_and_its_ancestors_are_never_members() -> None:
    me = os.getpid()
    known = {pid: processes.start_ticks(pid) for pid in (me, os.getppid())}
    assert {process.pid for process in processes.members(b"X=1", known)} & set(known) == set()


def test_a_process_is_known_by_its_start_too(started) -> None:
    process = sleeper()
    started.append(process)
    found = processes.look(process.pid)
    assert (found.session, found.group) == (process.pid, process.pid)
    assert not processes.send_signal(found._replace(start_ticks=1), signal.SIGKILL)
    assert processes.send_signal(found, signal.SIGKILL)
    process.wait()
    assert processes.look(process.pid) is None
    assert processes.start_ticks(process.pid) == 0
