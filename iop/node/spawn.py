"""Starts programs, each under a supervisor of its own, and finds them again after a restart."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet import defer, threads
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import implementer

import iop
from iop.interfaces import IProgramReceiver, ISpawner
from iop.node import control, guardian, journal, processes
from iop.node.box import Key
from iop.node.program import Program
from iop.node.remains import same
from iop.node.supervise import LISTENER
from iop.node.waiting import after
from iop.spawning import ProgramEnding, SpawnRequest

log = Logger()

# The package is not on the path of `-I -S`; as a module, and not as a script, it is compiled once and not at each start.
_PLACE = os.path.dirname(os.path.dirname(os.path.abspath(iop.__file__)))
_COMMAND = (sys.executable, "-I", "-S", "-X", "utf8", "-c",
            "import sys; sys.path.append(sys.argv.pop()); from iop.node import guardian; guardian.main()")
_LOG = "supervisor.log"      # what the interpreter says if it goes wrong
_NAME = re.compile(r"([0-9a-f]{32}|server-[A-Za-z0-9._-]{1,48})\.([0-9]{1,9})")     # of a run, or of a model server


@implementer(ISpawner)
class Spawner:
    """`folder` holds a folder for each program. `markers` go into every program's environment, beside IOP_RUN_ID.

    `started(run_id, pid)` is told of each program once it runs.
    """

    def __init__(self, reactor: Any, folder: str, markers: Mapping[str, str] | None = None,
                 started: Callable[[str, int], None] = lambda run_id, pid: None) -> None:
        self._reactor = reactor
        self._folder = folder
        self._markers = dict(markers or {})
        self._started = started
        self._programs: dict[Key, Program] = {}
        self._kept = {key[0] for key in _keys(folder)}   # the runs of which there may be folders

    def spawn(self, program: SpawnRequest, receiver: Any) -> Program:
        key = program.run_id, program.attempt
        running = self._program(key, receiver, 0)
        self._kept.add(program.run_id)
        markers = {**self._markers, "IOP_RUN_ID": program.run_id}
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            folder = self._folder_of(key)
            os.mkdir(folder, 0o700)
            with control.listening(folder) as listener:
                running.holder.connect()
                pid = posix_spawn(folder, listener.fileno(), markers)
        except OSError as failure:
            running.refuse(f"{program.argv[0]} could not be started: {failure.strerror}.")
            return running
        running.holder.watch(pid, processes.start_ticks(pid))
        running.begin(program, {**program.env, **markers})
        return running

    def take_up(self, run_id: str, attempt: int, receiver: Any, offset: int) -> Program:
        program = self._program((run_id, attempt), receiver, offset)
        self._reactor.callLater(0, program.take_up)
        return program

    def survivors(self) -> Deferred[set[Key]]:
        return threads.deferToThreadPool(self._reactor, self._reactor.getThreadPool(), _keys, self._folder)

    def discard(self, run_id: str, attempt: int) -> Deferred[None]:
        """Where nobody holds it any more, only its folder goes: a hunt for each of thousands would hold up a start, and
        what carries the node's mark is hunted once for all."""
        key = run_id, attempt
        if key in self._programs:
            return self._end(*key)
        looked = threads.deferToThreadPool(self._reactor, self._reactor.getThreadPool(), _lives, self._folder_of(key))
        return looked.addCallback(lambda lives: self._end(*key) if lives else self._remove([key]))

    def _end(self, run_id: str, attempt: int) -> Deferred[None]:
        receiver = _Nobody()
        program = self._programs.get((run_id, attempt)) or self.take_up(run_id, attempt, receiver, 0)
        ended = after(program.ended)
        program.kill()
        return ended.addCallback(lambda _: self._remove([(run_id, attempt)]))

    def forget(self, run_id: str) -> Deferred[None]:
        if run_id not in self._kept:             # a model's run, which is not worth a thread
            return defer.succeed(None)
        self._kept.discard(run_id)
        found = threads.deferToThreadPool(self._reactor, self._reactor.getThreadPool(), _keys, self._folder)
        found.addCallback(lambda keys: defer.gatherResults(
            [self.discard(*key) if key in self._programs else self._remove([key]) for key in keys if key[0] == run_id]))
        return found.addErrback(lambda failure: log.warn("run {run_id}: what is kept of its program cannot be removed: "
                                                         "{reason}", run_id=run_id, reason=failure.getErrorMessage()))

    def kill_all(self) -> Deferred[None]:
        """KILL whatever still runs; fires when all have ended."""
        programs = list(self._programs.values())
        waiting = [after(program.ended) for program in programs]
        for program in programs:
            program.kill()
        return defer.gatherResults(waiting).addCallback(lambda _: None)

    def _program(self, key: Key, receiver: Any, offset: int) -> Program:
        program = Program(self._reactor, self._folder_of(key), key[0], receiver, offset, self._started)
        self._programs[key] = program
        program.ended.addCallback(lambda _: self._programs.pop(key, None) and None)
        return program

    def _folder_of(self, key: Key) -> str:
        return os.path.join(self._folder, f"{key[0]}.{key[1]}")

    def _remove(self, keys: list[Key]) -> Deferred[None]:
        def remove() -> None:
            for key in keys:
                shutil.rmtree(self._folder_of(key), ignore_errors=True)

        return threads.deferToThreadPool(self._reactor, self._reactor.getThreadPool(), remove)


@implementer(IProgramReceiver)
class _Nobody:
    """Of a program that nobody waits for."""

    def program_started(self, pid: int) -> None: ...

    def output_received(self, channel: int, data: bytes, offset: int) -> None: ...

    def program_ended(self, ending: ProgramEnding) -> None: ...


def posix_spawn(folder: str, listener: int, environment: Mapping[str, str]) -> int:
    """Start a supervisor; its pid. Never a fork of this process, which may be large (42 ms at 1 GB). Raises OSError."""
    null = os.devnull
    actions = [(os.POSIX_SPAWN_OPEN, 0, null, os.O_RDONLY, 0), (os.POSIX_SPAWN_OPEN, 1, null, os.O_WRONLY, 0),
               (os.POSIX_SPAWN_OPEN, 2, os.path.join(folder, _LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
               (os.POSIX_SPAWN_DUP2, listener, LISTENER)]
    blocked = signal.valid_signals()        # until it has handlers; a session of its own keeps the terminal's away
    return os.posix_spawn(sys.executable, [*_COMMAND, folder, _PLACE], environment, file_actions=actions, setsid=True,
                          setsigmask=blocked)


def _lives(folder: str) -> bool:
    """Whether anything that the folder of a program tells of lives. Blocking."""
    known, above = journal.identity(folder), guardian.read(folder)
    return same(known, "pid", "ticks") or same(known, "child", "child_ticks") or same(above, "guardian", "guardian_ticks")


def _keys(folder: str) -> set[Key]:
    """What the folder holds. Blocking."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return set()
    return {(match[1], int(match[2])) for match in map(_NAME.fullmatch, names) if match is not None}
