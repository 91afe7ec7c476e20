"""Supervisors: what goes on without a node, what is told after each kind of death, and that nothing is left."""

from __future__ import annotations

import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import defer, reactor, threads
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from iop.node import holder as holder_module
from iop.node import journal, processes, signals, spawn, words
from iop.node.holder import Holder
from iop.node.spawn import Spawner
from iop.spawning import ProgramEnding, SpawnRequest
from tests.node.programs import PATH, Told, python, shell, survivors


@pytest.fixture
def folder():
    """Short: the rules of unix sockets are tested apart."""
    folder = tempfile.mkdtemp()
    yield folder
    shutil.rmtree(folder, True)


def is_child(pid: int) -> bool:
    """Living or its remains."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def children() -> set[str]:
    """Of this process, living or their remains."""
    return set(content(f"/proc/self/task/{os.getpid()}/children").decode().split())


def one_file(folder: str, pattern: str) -> Path:
    [found] = Path(folder).glob(pattern)
    return found


def content(path: str) -> bytes:
    return Path(path).read_bytes()


def connected_to(path: Path) -> socket.socket:
    """As somebody who is not its node."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(path))
    return connection


def write_journal(folder: str, data: bytes) -> None:
    os.mkdir(folder)
    Path(folder, "journal.0000000000000000").write_bytes(data)


def modes(folder: str) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in [Path(folder), *Path(folder).rglob("*")]}


def bounded(waiting: Deferred, seconds: float = 60.0) -> Deferred:
    return waiting.addTimeout(seconds, reactor)


async def until(condition: Any, seconds: float = 60.0) -> Any:
    deadline = reactor.seconds() + seconds
    while not condition():
        assert reactor.seconds() < deadline, "not in time"
        await deferLater(reactor, 0.02)
    return condition()


# --- a node that goes

LEFT = """
import os, sys
from twisted.internet import reactor
from iop.node.spawn import Spawner
from iop.spawning import SpawnRequest
from tests.node.programs import Told
class Loud(Told):
    def output_received(self, channel, data, offset):
        os.write(1, b"%d %d\\n" % (offset, len(data)))
request = SpawnRequest(run_id=sys.argv[2], attempt=1, argv=("/bin/sh", "-c", sys.argv[3]), cwd="/",
                       env={"PATH": "/usr/local/bin:/usr/bin:/bin"}, int_s=1.0, term_s=1.0)
Spawner(reactor, sys.argv[1]).spawn(request, Loud())
reactor.run()
"""
ROOT = Path(__file__).resolve().parents[2]


def left_by_a_killed_node(folder: str, run_id: str, script: str, outputs: int) -> tuple[int, int]:
    """Have another process start a program, killed -9 after some output; (offset, bytes told until then)."""
    node = subprocess.Popen([sys.executable, "-c", LEFT, folder, run_id, script], cwd=ROOT, stdout=subprocess.PIPE)
    told = [tuple(map(int, node.stdout.readline().split())) for _ in range(outputs)]
    node.kill()
    node.wait()
    node.stdout.close()
    return told[-1][0], sum(size for _, size in told)


@pytest_twisted.ensureDeferred
async def test_a_killed_nodes_program_is_taken_up_and_every_byte_comes_once(folder) -> None:
    request = shell("")
    script = "i=0; while [ $i -lt 4000 ]; do echo line $i; i=$((i+1)); done; sleep 0.5; echo end"
    offset, told_before = await threads.deferToThread(left_by_a_killed_node, folder, request.run_id, script, 2)
    assert await Spawner(reactor, folder).survivors() == {(request.run_id, 1)}
    told = Told()
    program = Spawner(reactor, folder).take_up(request.run_id, 1, told, offset)
    ending = await bounded(told.ended)
    whole = "".join(f"line {i}\n" for i in range(4000)).encode() + b"end\n"
    assert told.stdout == whole[told_before:]
    assert ending == ProgramEnding(exit_code=0) and program.pid
    again = Told()
    Spawner(reactor, folder).take_up(request.run_id, 1, again, 0)        # one that has ended: the same, from its journal
    assert await bounded(again.ended) == ending and again.stdout == whole and again.pid == program.pid


@pytest_twisted.ensureDeferred
async def test_what_is_taken_up_can_be_stopped_and_given_input(folder) -> None:
    request = shell("", argv=("/bin/sh", "-c", "echo go; read a; echo got $a; exec sleep 60"), keep_input=True)
    first, second = Told(), Told()
    Spawner(reactor, folder).spawn(request, first)
    await bounded(first.first)
    program = Spawner(reactor, folder).take_up(request.run_id, 1, second, 0)    # the later connection counts
    program.write(b"x\n")
    await until(lambda: second.stdout == b"go\ngot x\n")
    program.stop()
    assert await bounded(second.ended) == ProgramEnding(signal=signal.SIGINT, steps=("SIGINT",))
    assert survivors(request.run_id) == []


@pytest_twisted.ensureDeferred
async def test_a_node_that_goes_before_the_request_starts_nothing(folder, monkeypatch) -> None:
    request, told = shell("echo started > started", cwd=folder), Told()
    monkeypatch.setattr("iop.node.program.Program.begin",
                        lambda program, *_: program.holder._control.transport.loseConnection())
    Spawner(reactor, folder).spawn(request, told)
    ending = await bounded(told.ended)
    assert ending.error == "The node stopped before the program was started."
    assert "started" not in os.listdir(folder)


# --- a supervisor that is killed

async def killed(folder: str, script: str, wait: Any = None) -> tuple[ProgramEnding, Told]:
    request, told = shell(script), Told()
    program = Spawner(reactor, folder).spawn(request, told)
    await bounded(told.first)
    if wait is not None:
        await wait(program)
    os.kill(program.holder.known["pid"], signal.SIGKILL)
    ending = await bounded(told.ended)
    assert survivors(request.run_id) == []
    assert not is_child(program.holder.known["pid"])
    return ending, told


@pytest_twisted.ensureDeferred
async def test_with_its_supervisor_a_program_is_ended_and_what_was_found_is_told(folder) -> None:
    ending, told = await killed(folder, "setsid sleep 300 & echo go; sleep 300")
    assert (ending.exit_code, ending.signal, ending.error) == (None, None, "")
    assert "supervisor" in ending.lost and ending.found >= 1 and ending.processes_left == 0
    assert told.stdout == b"go\n"


@pytest_twisted.ensureDeferred
async def test_what_hides_from_all_markers_is_found_when_its_supervisor_is_killed(folder) -> None:
    async def exits(program: Any) -> None:
        await until(lambda: b'"exit_code": 3' in one_file(folder, "*/journal.*").read_bytes())

    # The grandchild holds the pipe and is heard, so that the supervisor is still waiting; only the guardian sees it.
    heard = "while echo go; do sleep 0.2; done"
    ending, told = await killed(folder, f"env -i setsid /bin/sh -c '{heard}' & exit 3", exits)
    assert ending.lost and told.stdout.startswith(b"go\n")
    assert ending.found >= 1 and (ending.processes_left, ending.exit_code) == (0, 3)


@pytest_twisted.ensureDeferred
async def test_a_journal_that_is_damaged_from_its_first_byte_says_nothing_of_a_start(folder) -> None:
    request, told = shell(""), Told()
    write_journal(os.path.join(folder, f"{request.run_id}.1"), b"\xff" * 100)
    Spawner(reactor, folder).take_up(request.run_id, 1, told, 0)
    ending = await bounded(told.ended)
    assert ending.lost and (ending.error, ending.found, ending.interrupted) == ("", 0, False)


def test_a_supervisor_is_gone_once(folder) -> None:
    """Its end may be seen before that of its connection."""
    watched, gone = [], []

    class Readers:
        addReader = staticmethod(watched.append)
        removeReader = staticmethod(watched.remove)

    holder = Holder(Readers(), folder, lambda offset: None, lambda: gone.append(True))
    holder.watch(os.getpid(), 1)
    watched[0].doRead()
    holder.take_up()                        # nobody listens there
    assert gone == [True] and not watched


@pytest_twisted.ensureDeferred
async def test_a_torn_tail_of_a_dead_supervisor_ends_in_lost(folder) -> None:
    request, told = shell("echo go; sleep 300"), Told()
    program = Spawner(reactor, folder).spawn(request, told)
    await bounded(told.first)
    os.kill(program.holder.known["pid"], signal.SIGKILL)
    await bounded(told.ended)
    path = one_file(folder, "*/journal.*")
    path.write_bytes(path.read_bytes() + journal.packed(journal.STDOUT, b"torn")[:-2])
    again = Told()
    Spawner(reactor, folder).take_up(request.run_id, 1, again, 0)
    ending = await bounded(again.ended)
    assert ending.lost and ending.found >= 1 and again.stdout == b"go\n"      # as its guardian noted it


@pytest_twisted.ensureDeferred
async def test_term_ends_a_supervisors_run_and_then_itself_and_nothing_else_does(folder) -> None:
    request, told = shell("echo go; exec sleep 300"), Told()
    program = Spawner(reactor, folder).spawn(request, told)
    await bounded(told.first)
    for number in signals.IGNORED:             # a program knows its parent's pid
        os.kill(program.holder.known["pid"], number)
    await deferLater(reactor, 0.3)
    assert not told.ended.called
    os.kill(program.holder.known["pid"], signal.SIGTERM)
    assert await bounded(told.ended) == ProgramEnding(signal=signal.SIGINT, steps=("SIGINT",))


@pytest_twisted.ensureDeferred
async def test_what_an_earlier_start_left_can_be_discarded(folder) -> None:
    request = shell("trap '' INT TERM; echo go; while :; do sleep 1; done")
    await threads.deferToThread(left_by_a_killed_node, folder, request.run_id, request.argv[2], 1)
    assert survivors(request.run_id)
    spawner = Spawner(reactor, folder)
    await bounded(spawner.discard(request.run_id, 1))
    assert survivors(request.run_id) == [] and os.listdir(folder) == []
    assert await spawner.survivors() == set()


@pytest_twisted.ensureDeferred
async def test_a_thousand_dead_folders_are_discarded_without_a_hunt_for_each(folder, monkeypatch) -> None:
    monkeypatch.setattr("iop.node.remains.processes.members", None)
    names = [f"{number:032x}" for number in range(1000)]
    for name in names:
        write_journal(os.path.join(folder, f"{name}.1"), b"\xff" * 50)
    spawner = Spawner(reactor, folder)
    await bounded(defer.gatherResults([spawner.discard(name, 1) for name in names]))
    assert os.listdir(folder) == []


@pytest_twisted.ensureDeferred
async def test_a_supervisor_whose_folder_was_removed_ends_its_run(folder) -> None:
    request, told = shell("echo go; exec sleep 300"), Told()
    Spawner(reactor, folder).spawn(request, told)
    await bounded(told.first)
    shutil.rmtree(folder)
    await until(lambda: survivors(request.run_id) == [])
    await bounded(told.ended)


# --- a supervisor that is disturbed

@pytest_twisted.ensureDeferred
async def test_a_node_whose_connection_is_taken_connects_again_and_nothing_is_unheard(folder, monkeypatch) -> None:
    monkeypatch.setattr(holder_module, "AGAIN_S", 0.1)
    request, told = shell("echo go; read line; echo $line; exec sleep 300", keep_input=True), Told()
    program = Spawner(reactor, folder).spawn(request, told)
    await bounded(told.first)
    for _ in range(3):
        with connected_to(one_file(folder, "*/control")):
            await deferLater(reactor, 0.3)
    program.write(b"on\n")
    await until(lambda: told.stdout == b"go\non\n")
    with connected_to(one_file(folder, "*/control")):
        program.stop()                         # into a connection that is no more, perhaps
        assert (await bounded(told.ended)).steps == ("SIGINT",)


@pytest_twisted.ensureDeferred
async def test_what_a_stranger_says_to_a_supervisor_ends_nothing(folder, monkeypatch) -> None:
    monkeypatch.setattr(holder_module, "AGAIN_S", 0.1)
    request, told = shell("echo go; exec sleep 300"), Told()
    program = Spawner(reactor, folder).spawn(request, told)
    await bounded(told.first)
    for said in (words.word(words.KEPT, b"abc"), words.word(words.REQUEST, b"{"), words.word(words.REQUEST, b"{}"),
                 words.word(words.GO) * 3, b"\xff" * 1000, words.word(200), words.word(words.GREW), b"\0"):
        with connected_to(one_file(folder, "*/control")) as connection:
            connection.sendall(said)
            await deferLater(reactor, 0.1)
    await deferLater(reactor, 0.3)
    assert not told.ended.called
    program.stop()
    assert (await bounded(told.ended)).steps == ("SIGINT",)


@pytest_twisted.ensureDeferred
@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_supervisor_that_was_stopped_goes_on_to_end_its_program(folder, how: str) -> None:
    request, told = shell("echo go; exec sleep 300"), Told()
    program = Spawner(reactor, folder).spawn(request, told)
    await bounded(told.first)
    os.kill(program.holder.known["pid"], signal.SIGSTOP)
    getattr(program, how)()
    ending = await bounded(told.ended)
    assert ending.steps and not ending.lost and survivors(request.run_id) == []


@pytest_twisted.ensureDeferred
async def test_a_supervisor_that_hears_nothing_is_killed_with_its_program(folder, monkeypatch) -> None:
    """Of a run that has ended without it."""
    monkeypatch.setattr(holder_module, "FORCE_S", 0.3)
    monkeypatch.setattr(holder_module, "GO_ON", 0)
    request, told = shell("setsid sleep 300 & echo go; exec sleep 300"), Told()
    spawner = Spawner(reactor, folder)
    program = spawner.spawn(request, told)
    await bounded(told.first)
    os.kill(program.holder.known["pid"], signal.SIGSTOP)
    await bounded(spawner.forget(request.run_id))
    assert (await bounded(told.ended)).found
    assert survivors(request.run_id) == [] and os.listdir(folder) == []


@pytest_twisted.ensureDeferred
@pytest.mark.parametrize(("harm", "sentence"), [
    (": > $journal", "lacks what its supervisor wrote|is damaged"),      # by what stands there when it is read
    ("printf '\\0\\0\\377\\0some' >> $journal", "lacks what its supervisor wrote"),
    ("printf '\\0\\0\\0\\1some\\2x' >> $journal", "is damaged"),
    ("printf '\\0\\0\\0\\2\\33\\365\\266\\105\\5{}' >> $journal", "says nothing")])
async def test_a_program_that_spoils_its_own_journal_ends_and_is_told_so(folder, harm: str, sentence: str) -> None:
    request, told = shell(f"journal=$(echo {folder}/*/journal.*); {harm}; echo go; sleep 0.2; echo on"), Told()
    Spawner(reactor, folder).spawn(request, told)
    assert re.search(sentence, (await bounded(told.ended)).lost)
    assert survivors(request.run_id) == []


# --- output

@pytest_twisted.ensureDeferred
async def test_any_bytes_come_as_they_are(folder) -> None:
    data = random.Random(1).randbytes(300_000) + bytes(range(256)) * 8 + b"\x1b[2J\x00\xff\xfe"
    told = Told()
    Spawner(reactor, folder).spawn(shell("cat", stdin=data), told)
    assert (await bounded(told.ended)).exit_code == 0
    assert told.stdout == data


class Counting(Told):
    """Keeps lengths; tells the journal what it need not keep when `keeps`."""

    def __init__(self, keeps: bool) -> None:
        super().__init__()
        self.keeps, self.total, self.program = keeps, 0, None

    def output_received(self, channel: int, data: bytes, offset: int) -> None:
        self.total += len(data)
        super().output_received(channel, b"", offset)
        if self.keeps and self.program is not None:
            self.program.kept(offset)


def size_of(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).glob("*/journal.*"))


@pytest_twisted.ensureDeferred
async def test_a_flood_is_read_whole_and_its_journal_stays_small(folder) -> None:
    told = Counting(keeps=True)
    told.program = Spawner(reactor, folder).spawn(shell("head -c 150000000 /dev/zero"), told)
    largest = 0
    while not told.ended.called:
        largest = max(largest, size_of(folder))
        await deferLater(reactor, 0.05)
    assert (told.total, (await told.ended).exit_code) == (150_000_000, 0)
    assert largest < 80 * 2 ** 20
    assert size_of(folder) < 10 * 2 ** 20


@pytest_twisted.ensureDeferred
async def test_a_paused_reader_bounds_the_journal_and_gets_the_rest_afterwards(folder) -> None:
    told = Counting(keeps=True)
    told.program = program = Spawner(reactor, folder).spawn(shell("echo go; head -c 120000000 /dev/zero; echo end"), told)
    await bounded(told.first)
    program.pause()
    before = told.total
    await until(lambda: size_of(folder) >= 64 * 2 ** 20)
    await deferLater(reactor, 0.3)
    assert size_of(folder) < 65 * 2 ** 20 and told.total == before
    program.resume()
    assert (await bounded(told.ended)).exit_code == 0
    assert told.total == 120_000_007


@pytest_twisted.ensureDeferred
async def test_a_program_that_is_blocked_by_a_full_journal_can_be_stopped(folder) -> None:
    told = Counting(keeps=False)
    request = shell("echo go; exec cat /dev/zero")
    program = Spawner(reactor, folder).spawn(request, told)
    await bounded(told.first)
    program.pause()
    await until(lambda: size_of(folder) >= 64 * 2 ** 20)
    program.stop()
    program.resume()
    assert (await bounded(told.ended)).signal == signal.SIGINT
    assert survivors(request.run_id) == []


@pytest_twisted.ensureDeferred
async def test_a_program_that_closes_its_output_runs_on_to_its_exit(folder) -> None:
    told = Told()
    Spawner(reactor, folder).spawn(shell("echo go; exec >&- 2>&-; sleep 0.6; exit 7"), told)
    await bounded(told.first)
    began = reactor.seconds()
    assert await bounded(told.ended) == ProgramEnding(exit_code=7)
    assert reactor.seconds() - began > 0.4


# --- a disk that is full

@pytest_twisted.ensureDeferred
async def test_a_disk_that_takes_nothing_loses_nothing(folder, monkeypatch) -> None:
    """RLIMIT_FSIZE makes the journal's file as full as a disk; lifted later."""
    told = Told()
    program = Spawner(reactor, folder).spawn(shell("echo go; sleep 1; head -c 2000000 /dev/zero; echo end"), told)
    await bounded(told.first)
    resource.prlimit(program.holder.known["pid"], resource.RLIMIT_FSIZE, (1_000_001, resource.RLIM_INFINITY))
    await until(lambda: size_of(folder) == 1_000_001)
    await deferLater(reactor, 1.3)
    assert not told.ended.called and len(told.stdout) <= 1_000_001
    resource.prlimit(program.holder.known["pid"], resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert (await bounded(told.ended)).exit_code == 0
    assert told.stdout == b"go\n" + bytes(2_000_000) + b"end\n"


# --- survivors

FORK_STORM = """
import os, time, signal
for number in (1, 2, 15):
    signal.signal(number, signal.SIG_IGN)
print('go', flush=True)
for _ in range(5):
    if os.fork() == 0:
        if os.fork():
            os._exit(0)
        os.setsid()
time.sleep(60)
"""
SCRUBBED = "env -i setsid sh -c 'trap \"\" INT TERM; while :; do sleep 1; done' & echo go; exit 0"
HOLDS_PIPE = "(trap '' INT TERM; setsid sleep 60) & echo go; sleep 60"
IGNORES = "trap '' INT TERM; echo go; while :; do sleep 1; done"
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
print('go', flush=True)
time.sleep(60)
"""


@pytest_twisted.ensureDeferred
async def test_fifty_cancels_of_a_mix_leave_nothing(folder) -> None:
    """The longer one is in tests/faults."""
    spawner = Spawner(reactor, folder)
    kinds = [lambda: python(FORK_STORM, int_s=0.2, term_s=0.2), lambda: shell(SCRUBBED, int_s=0.2, term_s=0.2),
             lambda: shell(HOLDS_PIPE, int_s=0.2, term_s=0.2), lambda: shell(IGNORES, int_s=0.2, term_s=0.2),
             lambda: python(DAEMON, int_s=0.2, term_s=0.2)]

    async def one(request: SpawnRequest) -> int:
        told = Told()
        program = spawner.spawn(request, told)
        await bounded(told.first)
        supervisor = program.holder.known["pid"]
        family = {process.pid for process in processes.members(b"IOP_RUN_ID=" + request.run_id.encode(), {},
                                                               root=supervisor)}
        program.stop()
        ending = await bounded(told.ended)
        left = [pid for pid in family if processes.look(pid) is not None]
        return len(survivors(request.run_id)) + len(left) + abs(ending.processes_left)

    total = 0
    for first in range(0, 50, 5):
        total += sum(await defer.gatherResults(
            [Deferred.fromCoroutine(one(kinds[n % len(kinds)]())) for n in range(first, first + 5)]))
    assert total == 0


# --- what starting costs

@pytest_twisted.ensureDeferred
async def test_nothing_is_inherited_from_a_node_with_five_thousand_descriptors(folder) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 6000), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(5000)]
    os.set_inheritable(held[0], True)
    try:
        told = Told()
        program = Spawner(reactor, folder).spawn(shell("ls /proc/self/fd; ls /proc/$PPID/fd | wc -l"), told)
        await bounded(told.ended)
        words = told.stdout.split()
        assert words[:4] == [b"0", b"1", b"2", b"3"]                  # 3 is the listing's own
        assert int(words[4]) < 20
        assert program.pid
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest_twisted.ensureDeferred
async def test_a_node_does_not_fork_itself(folder, monkeypatch) -> None:
    def forbidden(*_: Any) -> None:
        raise AssertionError("a fork of the node")

    monkeypatch.setattr(os, "fork", forbidden)
    told = Told()
    Spawner(reactor, folder).spawn(shell("true"), told)
    assert (await bounded(told.ended)).exit_code == 0


@pytest_twisted.ensureDeferred
async def test_descriptors_and_zombies_do_not_gather(folder) -> None:
    spawner = Spawner(reactor, folder)

    async def one() -> None:
        told = Told()
        spawner.spawn(shell("true"), told)
        await bounded(told.ended)

    await one()
    await deferLater(reactor, 0.1)
    before, others = len(os.listdir("/proc/self/fd")), children()
    for _ in range(10):
        await one()
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before)
    await until(lambda: not spawner._programs)
    assert children() <= others


@pytest_twisted.ensureDeferred
async def test_a_state_folder_may_lie_deep(folder) -> None:
    deep = os.path.join(folder, *["d" * 60] * 4)
    told = Told()
    Spawner(reactor, deep).spawn(shell("echo hi"), told)
    await bounded(told.ended)
    assert told.stdout == b"hi\n"
    found = modes(deep)
    assert {mode for name, mode in found.items() if "." in name} <= {0o600, 0o700} and "journal." + "0" * 16 in found
    assert found["d" * 60] == 0o700


@pytest_twisted.ensureDeferred
async def test_the_request_is_not_in_the_supervisors_own_arguments(folder) -> None:
    told = Told()
    program = Spawner(reactor, folder).spawn(
        shell("echo go; sleep 60 # secret", env={"PATH": PATH, "KEY": "secret"}), told)
    await bounded(told.first)
    for name in ("cmdline", "environ"):
        assert b"secret" not in content(f"/proc/{program.holder.known['pid']}/{name}")
    program.kill()
    await bounded(told.ended)


@pytest_twisted.ensureDeferred
async def test_a_machine_that_starts_no_process_says_so(folder, monkeypatch) -> None:
    def full(*_: Any, **__: Any) -> int:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(spawn.os, "posix_spawn", full)
    told = Told()
    Spawner(reactor, folder).spawn(shell("true"), told)
    assert (await bounded(told.ended)).error == "/bin/sh could not be started: Resource temporarily unavailable."
