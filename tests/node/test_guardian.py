"""Whoever of the two that hold a program is killed, the other one ends all of it, also what hides from every marker."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.task import deferLater

from iop.node import guardian, processes
from iop.node.spawn import Spawner
from iop.spawning import ProgramEnding, SpawnRequest
from tests.node.programs import Told, shell, survivors

HIDDEN = "env -i setsid sleep 4321 & env -i setsid sh -c 'sleep 4321 & sleep 4321' & echo $! > hidden; echo go; sleep 300"


@pytest.fixture
def folder():
    folder = tempfile.mkdtemp()
    yield folder
    shutil.rmtree(folder, True)


async def begun(folder: str) -> tuple[SpawnRequest, Told]:
    request, told = shell(HIDDEN, cwd=folder), Told()
    Spawner(reactor, folder).spawn(request, told)
    await told.first.addTimeout(30, reactor)
    while told.stdout != b"go\n" or len(hidden_processes(folder)) < 4:
        await deferLater(reactor, 0.02)
    return request, told


def noted(folder: str, request: SpawnRequest) -> dict:
    return guardian.read(os.path.join(folder, f"{request.run_id}.1"))


def hidden_processes(folder: str) -> list[str]:
    """The living processes that work in the folder of the test, where the program and all that it starts do."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(place / "cwd") == folder and processes.look(int(place.name)) is not None:
                found.append(place.name)
        except OSError:
            continue
    return found


async def ended(told: Told) -> ProgramEnding:
    return await told.ended.addTimeout(60, reactor)


@pytest_twisted.ensureDeferred
async def test_of_a_killed_supervisor_the_guardian_ends_the_rest(folder) -> None:
    request, told = await begun(folder)
    known = noted(folder, request)
    [supervisor] = children_of(known["guardian"])
    os.kill(supervisor, signal.SIGKILL)
    ending = await ended(told)
    assert ending.lost and ending.found >= 3 and ending.processes_left == 0
    assert hidden_processes(folder) == [] and survivors(request.run_id) == []


@pytest_twisted.ensureDeferred
async def test_of_a_killed_guardian_the_supervisor_ends_the_run(folder) -> None:
    request, told = await begun(folder)
    os.kill(noted(folder, request)["guardian"], signal.SIGKILL)
    ending = await ended(told)
    assert ending.lost and ending.found >= 1 and ending.processes_left == 0
    assert hidden_processes(folder) == [] and survivors(request.run_id) == []


@pytest_twisted.ensureDeferred
async def test_where_both_are_killed_it_is_told_that_nothing_is_known(folder) -> None:
    request, told = await begun(folder)
    known = noted(folder, request)
    [supervisor] = children_of(known["guardian"])
    os.kill(known["guardian"], signal.SIGSTOP)       # so that it cannot act in between
    os.kill(supervisor, signal.SIGKILL)
    os.kill(known["guardian"], signal.SIGKILL)
    ending = await ended(told)
    left = hidden_processes(folder)
    for pid in left:
        os.kill(int(pid), signal.SIGKILL)
    assert ending.lost and ending.processes_left == -1 and left


@pytest_twisted.ensureDeferred
async def test_a_later_start_of_the_node_is_told_what_the_guardian_found(folder) -> None:
    request, told = await begun(folder)
    [supervisor] = children_of(noted(folder, request)["guardian"])
    os.kill(supervisor, signal.SIGKILL)
    first = await ended(told)
    again = Told()
    Spawner(reactor, folder).take_up(request.run_id, 1, again, 0)
    second = await ended(again)
    assert (second.lost, second.processes_left) == (first.lost, 0) and second.found >= 3


@pytest_twisted.ensureDeferred
async def test_a_run_that_ends_by_itself_leaves_no_guardian(folder) -> None:
    request, told = shell("echo go; exit 3"), Told()
    Spawner(reactor, folder).spawn(request, told)
    assert (await ended(told)).exit_code == 3
    while processes.start_ticks(noted(folder, request)["guardian"]):
        await deferLater(reactor, 0.02)
    assert "found" not in noted(folder, request)


def children_of(pid: int) -> list[int]:
    found = [processes.look(int(place.name)) for place in Path("/proc").glob("[0-9]*")]
    return [process.pid for process in found if process is not None and process.parent == pid]
