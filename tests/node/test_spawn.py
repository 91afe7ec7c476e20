"""Real programs, started and ended; each test ends with no process left."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import tempfile

import pytest
import pytest_twisted
from twisted.internet import defer, reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from zope.interface.verify import verifyClass

from iop.interfaces import IProgram, ISpawner
from iop.node.program import Program
from iop.node.spawn import Spawner
from iop.spawning import ProgramEnding
from tests.node.programs import PATH, Told, python, shell, survivors

FOLDER = tempfile.mkdtemp()
atexit.register(shutil.rmtree, FOLDER, True)


def bounded(waiting: Deferred, seconds: float = 30.0) -> Deferred:
    return waiting.addTimeout(seconds, reactor)


def later(seconds: float) -> Deferred:
    return deferLater(reactor, seconds)


async def ran(request, told=None) -> tuple[ProgramEnding, Told]:
    told = told or Told()
    Spawner(reactor, FOLDER).spawn(request, told)
    ending = await bounded(told.ended)
    assert survivors(request.run_id) == []
    return ending, told


def test_it_is_a_spawner() -> None:
    assert verifyClass(ISpawner, Spawner)
    assert verifyClass(IProgram, Program)


@pytest_twisted.ensureDeferred
async def test_output_and_exit_code_are_told() -> None:
    ending, told = await ran(shell("echo out; echo err >&2; exit 3"))
    assert (told.stdout, told.stderr) == (b"out\n", b"err\n")
    assert ending == ProgramEnding(exit_code=3)


@pytest_twisted.ensureDeferred
async def test_the_environment_is_exactly_what_was_given_and_the_markers() -> None:
    told = Told()
    request = shell("", argv=("/usr/bin/env",), env={"A": "1"})
    Spawner(reactor, FOLDER, {"IOP_NODE": "n1"}).spawn(request, told)
    await bounded(told.ended)
    assert sorted(told.stdout.decode().split()) == ["A=1", "IOP_NODE=n1", f"IOP_RUN_ID={request.run_id}"]


@pytest_twisted.ensureDeferred
async def test_a_program_has_three_descriptors_its_own_session_and_default_signals() -> None:
    script = ("import os, json; print(json.dumps({'fds': sorted(os.listdir('/proc/self/fd')), "
              "'leader': os.getsid(0) == os.getpid(), 'cwd': os.getcwd()}))")
    ending, told = await ran(python(script, cwd="/usr"))
    seen = json.loads(told.stdout)
    assert seen == {"fds": ["0", "1", "2", "3"], "leader": True, "cwd": "/usr"}  # 3 is the listing's own
    ending, told = await ran(shell("grep SigIgn /proc/self/status"))
    assert int(told.stdout.split()[1], 16) & 0x7FFFFFFF == 0  # 32 and 33 are the C library's own


@pytest_twisted.ensureDeferred
async def test_standard_input_is_empty_unless_given() -> None:
    ending, told = await ran(shell("cat"))
    assert (ending, told.stdout) == (ProgramEnding(exit_code=0), b"")
    ending, told = await ran(shell("cat", stdin=b"x" * 300_000))
    assert told.stdout == b"x" * 300_000


@pytest_twisted.ensureDeferred
async def test_input_can_follow() -> None:
    told = Told()
    request = shell("read a; echo got $a; read b; echo got $b", stdin=b"one\n", keep_input=True)
    program = Spawner(reactor, FOLDER).spawn(request, told)
    await bounded(told.first)
    program.write(b"two\n")
    program.close_input()
    await bounded(told.ended)
    assert told.stdout == b"got one\ngot two\n"


@pytest_twisted.ensureDeferred
async def test_a_missing_program_and_a_missing_folder_are_sentences() -> None:
    ending, told = await ran(shell("", argv=("/no/such/program",)))
    assert ending.error == "/no/such/program could not be started: No such file or directory."
    assert (ending.exit_code, ending.signal, told.pid) == (None, None, 0)
    ending, told = await ran(shell("true", cwd="/no/such/folder"))
    assert ending.error == "The folder /no/such/folder cannot be entered: No such file or directory."


@pytest_twisted.ensureDeferred
async def test_a_refused_spawn_is_told_to_the_receiver() -> None:
    ending, _ = await ran(shell("", argv=("/bin/echo", "x" * 5_000_000)))
    assert "could not be started" in ending.error


@pytest_twisted.ensureDeferred
async def test_a_signal_of_its_own_is_told() -> None:
    ending, _ = await ran(shell("kill -SEGV $$"))
    assert (ending.exit_code, ending.signal) == (None, signal.SIGSEGV)


@pytest_twisted.ensureDeferred
async def test_a_grandchild_that_holds_the_pipe_does_not_hold_the_end() -> None:
    ending, told = await ran(shell("(sleep 60) & echo done"))
    assert told.stdout == b"done\n"
    assert (ending.exit_code, ending.processes_left) == (0, 0)


@pytest_twisted.ensureDeferred
async def test_what_a_grandchild_says_shortly_after_the_exit_is_kept() -> None:
    _, told = await ran(shell("(sleep 0.3; echo late) & echo first"))
    assert told.stdout == b"first\nlate\n"


@pytest_twisted.ensureDeferred
async def test_a_long_output_arrives_whole() -> None:
    _, told = await ran(shell("head -c 3000000 /dev/zero"))
    assert len(told.stdout) == 3_000_000


@pytest_twisted.ensureDeferred
async def test_a_paused_program_loses_nothing_and_is_not_read() -> None:
    told = Told()
    program = Spawner(reactor, FOLDER).spawn(shell("echo go; head -c 1000000 /dev/zero; echo end"), told)
    await bounded(told.first)
    program.pause()
    before = len(told.stdout)
    await later(0.3)
    assert len(told.stdout) == before
    program.resume()
    await bounded(told.ended)
    assert told.stdout[:3] + told.stdout[-4:] == b"go\nend\n"
    assert len(told.stdout) == 1_000_007


@pytest_twisted.ensureDeferred
async def test_a_paused_program_that_ends_is_told_to_its_end_once_resumed() -> None:
    told = Told()
    program = Spawner(reactor, FOLDER).spawn(shell("echo go; sleep 0.2; echo end"), told)
    await bounded(told.first)
    program.pause()
    await later(0.6)
    assert not told.ended.called
    program.resume()
    ending = await bounded(told.ended)
    assert (ending.exit_code, told.stdout) == (0, b"go\nend\n")


async def stopped(request) -> ProgramEnding:
    told = Told()
    program = Spawner(reactor, FOLDER).spawn(request, told)
    await bounded(told.first)
    program.stop()
    program.stop()
    ending = await bounded(told.ended)
    assert survivors(request.run_id) == []
    return ending


@pytest_twisted.ensureDeferred
async def test_a_stop_begins_with_int() -> None:
    ending = await stopped(shell("echo go; exec sleep 60"))
    assert ending == ProgramEnding(signal=signal.SIGINT, steps=("SIGINT",))


@pytest_twisted.ensureDeferred
async def test_int_reaches_a_program_once() -> None:
    told = Told()
    program = Spawner(reactor, FOLDER).spawn(
        python("import signal, time\ncame = []\nsignal.signal(2, lambda *_: came.append(2))\nprint('go', flush=True)\n"
               "while not came: time.sleep(0.02)\ntime.sleep(0.6)\nprint(came)\n", int_s=15.0), told)
    await bounded(told.first)
    program.stop()
    await bounded(told.ended)
    assert told.stdout == b"go\n[2]\n"


@pytest_twisted.ensureDeferred
async def test_a_program_that_ignores_signals_is_killed() -> None:
    ending = await stopped(shell("trap '' INT TERM; echo go; while :; do sleep 1; done", int_s=0.2, term_s=0.2))
    assert ending == ProgramEnding(signal=signal.SIGKILL, steps=("SIGINT", "SIGTERM", "SIGKILL"))


@pytest_twisted.ensureDeferred
async def test_what_left_its_session_is_ended_too() -> None:
    ending = await stopped(shell("setsid sh -c 'trap \"\" INT TERM; sleep 60 & echo go; wait' & wait", int_s=0.2, term_s=0.2))
    assert ending.processes_left == 0
    assert ending.steps[-1] == "SIGKILL"


@pytest_twisted.ensureDeferred
async def test_a_child_without_the_marker_is_found_by_its_parents() -> None:
    ending = await stopped(shell("env -i setsid /bin/sleep 61 & sleep 0.2; echo go; wait"))
    assert ending.processes_left == 0
    assert not [p for p in os.listdir("/proc") if p.isdigit() and _command(p) == b"/bin/sleep\x0061\x00"]


def _command(pid: str) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as stream:
            return stream.read()
    except OSError:
        return b""


DOUBLE_FORK = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    print('go', flush=True)
    time.sleep(60)
time.sleep(60)
"""
IGNORES_SIGNALS = """
import os, time, signal
for number in (1, 2, 15):
    signal.signal(number, signal.SIG_IGN)
os.fork()
print('go', flush=True)
time.sleep(60)
"""
LEADER_OBEYS = """
import os, time, signal
signal.signal(2, lambda *a: os._exit(0))
if os.fork() == 0:
    os.setsid()
    signal.signal(2, signal.SIG_IGN)
    signal.signal(15, signal.SIG_IGN)
    time.sleep(60)
print('go', flush=True)
time.sleep(60)
"""
RUNS_AWAY = """
import os, time
print('go', flush=True)
while True:
    if os.fork():
        os._exit(0)
    os.setsid()
    time.sleep(0.01)
"""


@pytest.mark.parametrize("script", [DOUBLE_FORK, IGNORES_SIGNALS, LEADER_OBEYS, RUNS_AWAY],
                         ids=["double fork", "ignored signals", "leader obeys, child does not", "runs away"])
@pytest_twisted.ensureDeferred
async def test_no_survivor_after_a_cancel(script) -> None:
    def one() -> Deferred:
        return Deferred.fromCoroutine(stopped(python(script, int_s=0.2, term_s=0.2)))

    endings = await defer.gatherResults([one() for _ in range(4)])
    assert [ending.processes_left for ending in endings] == [0] * 4


@pytest_twisted.ensureDeferred
async def test_kill_all_ends_everything_at_once() -> None:
    spawner, told = Spawner(reactor, FOLDER), Told()
    spawner.spawn(shell("trap '' INT TERM; echo go; while :; do sleep 1; done", int_s=60.0), told)
    await bounded(told.first)
    await bounded(spawner.kill_all(), 5.0)
    assert (await told.ended).steps == ("SIGKILL",)


@pytest_twisted.ensureDeferred
async def test_the_program_is_told_of_as_soon_as_it_has_a_pid() -> None:
    seen = []
    request, told = shell("true", env={"PATH": PATH}), Told()
    program = Spawner(reactor, FOLDER, started=lambda run_id, pid: seen.append((run_id, pid))).spawn(request, told)
    await bounded(told.ended)
    assert seen == [(request.run_id, program.pid)]
