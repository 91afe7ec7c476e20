"""Starts programs in a session of their own and ends all of each of them. The only caller of spawnProcess.

The life of a program::

    spawn --> launcher --exec--> running --exit--> drain --> sweep --> ended
                 |                  |                          ^
                 +-- no such file   +-- stop: INT, TERM, KILL -+

The end is the program's exit and a short drain, not the end of its pipes: a grandchild may hold those for hours. What
carries the run's marker then, or is known to descend from it, is killed before the ending is told.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from twisted.internet import defer, protocol, threads
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from iop.interfaces import IProgram, IProgramReceiver, ISpawner
from iop.node import processes
from iop.proto.run_pb2 import CHANNEL_STDERR, CHANNEL_STDOUT
from iop.spawning import ProgramEnding, SpawnRequest

log = Logger()

LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launcher.py")
CHANNELS = {1: CHANNEL_STDOUT, 2: CHANNEL_STDERR}
REPORT = 3                # the launcher's word on the exec
DRAIN_QUIET_S = 1.0       # after the exit: pipes that say nothing for this long are closed
DRAIN_LIMIT_S = 5.0       # and all are, after this long
LEFT_BEHIND_S = 1.0       # what outlives its program has this long between TERM and KILL
SWEEP_LIMIT_S = 12.0      # KILL again until none is left, at most this long
LOOK_AGAIN_S = 0.03       # a process in the middle of an exec shows no marker for an instant


@implementer(ISpawner)
class Spawner:
    """`markers` go into every program's environment, beside IOP_RUN_ID; `started(run_id, pid)` is told of each."""

    def __init__(self, reactor: Any, markers: Mapping[str, str] | None = None,
                 started: Callable[[str, int], None] = lambda run_id, pid: None) -> None:
        self._reactor = reactor
        self._markers = dict(markers or {})
        self.started = started
        self._programs: set[Program] = set()

    def spawn(self, program: SpawnRequest, receiver: Any) -> Program:
        running = Program(self._reactor, program, receiver)
        environment = {**program.env, **self._markers, "IOP_RUN_ID": program.run_id}
        self._programs.add(running)
        running.ended.addCallback(lambda _: self._programs.discard(running))
        running.start(environment)
        if running.pid:
            self.started(program.run_id, running.pid)
        return running

    def kill_all(self) -> Deferred[None]:
        """KILL whatever still runs; fires when all have ended."""
        programs = list(self._programs)
        for program in programs:
            program.kill()
        return defer.gatherResults([_notice(program.ended) for program in programs]).addCallback(lambda _: None)


def _notice(source: Deferred[None]) -> Deferred[None]:
    """A Deferred of one's own that fires when `source` does."""
    notice: Deferred[None] = Deferred()

    def passed(value: None) -> None:
        notice.callback(None)

    source.addCallback(passed)
    return notice


@implementer(IProgram)
class Program(protocol.ProcessProtocol):
    """One program, from its launcher to the last of its descendants."""

    def __init__(self, reactor: Any, request: SpawnRequest, receiver: Any) -> None:
        self.pid = 0
        self.ended: Deferred[None] = Deferred()   # after program_ended
        self._reactor = reactor
        self._request = request
        self._receiver = IProgramReceiver(receiver)
        self._marker = f"IOP_RUN_ID={request.run_id}".encode()
        self._known: dict[int, int] = {}          # pid: start ticks, of all that were seen
        self._since_ticks = 0
        self._report = b""
        self._told_start = False
        self._exit: ProgramEnding | None = None
        self._open = {*CHANNELS, REPORT}
        self._paused = False
        self._finishing = False                   # pauses do not count any more: what is left in the pipes is little
        self._steps: list[str] = []
        self._ladder: Deferred[None] | None = None
        self._killing = False
        self._wake: Deferred[None] | None = None  # fired by what a wait looks out for
        self._read_at = 0.0

    # --- starting

    def start(self, environment: Mapping[str, str]) -> None:
        request = self._request
        command = [sys.executable, "-I", "-S", LAUNCHER, request.cwd, *request.argv]
        wants_input = request.stdin is not None or request.keep_input
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Neither path nor uid is given, so that Twisted uses posix_spawn.
            transport = self._reactor.spawnProcess(
                self, command[0], command, env=dict(environment),
                childFDs={0: "w" if wants_input else null, 1: "r", 2: "r", REPORT: "r"})
        except (OSError, ValueError) as failure:
            self._reactor.callLater(0, self._never_started, f"{request.argv[0]} could not be started: {failure}.")
            return
        finally:
            os.close(null)
        self.pid = transport.pid
        self._since_ticks = processes.start_ticks(self.pid)
        self._known[self.pid] = self._since_ticks
        if request.stdin is not None:
            self.write(request.stdin)
            if not request.keep_input:
                self.close_input()

    def _never_started(self, sentence: str) -> None:
        self._finish(ProgramEnding(error=sentence))

    def _tell_start(self) -> None:
        if not self._told_start and not self._report:
            self._told_start = True
            self._receiver.program_started(self.pid)

    # --- what Twisted tells

    def childDataReceived(self, childFD: int, data: bytes) -> None:
        if childFD == REPORT:
            self._report += data
            return
        self._tell_start()
        self._read_at = self._reactor.seconds()
        self._receiver.output_received(CHANNELS[childFD], data)

    def childConnectionLost(self, childFD: int) -> None:
        self._open.discard(childFD)
        if childFD == REPORT:
            self._tell_start()
        if not self._open or childFD == REPORT:
            self._woken()

    def processExited(self, reason: Failure) -> None:
        self._exit = ProgramEnding(exit_code=reason.value.exitCode, signal=reason.value.signal)
        self._woken()
        Deferred.fromCoroutine(self._end()).addErrback(self._end_failed)

    # --- IProgram

    def write(self, data: bytes) -> None:
        if self.transport is not None and self._exit is None:
            self.transport.write(data)

    def close_input(self) -> None:
        if self.transport is not None and self._exit is None:
            self.transport.closeStdin()

    def pause(self) -> None:
        self._paused = True
        if not self._finishing:
            for pipe in self._pipes():
                pipe.stopReading()

    def resume(self) -> None:
        self._paused = False
        if not self._finishing:
            for pipe in self._pipes():
                pipe.startReading()
            self._read_at = self._reactor.seconds()

    def _pipes(self) -> list[Any]:
        """The open ones of standard output and error; the launcher's report is never paused."""
        pipes = self.transport.pipes if self.transport is not None else {}
        return [pipes[number] for number in CHANNELS if number in pipes]

    def stop(self) -> None:
        if self.pid and self._ladder is None and self._exit is None:
            self._ladder = Deferred.fromCoroutine(self._climb())
            self._ladder.addErrback(self._ladder_failed)

    def kill(self) -> None:
        """Cut the ladder short."""
        self._killing = True
        self.stop()
        self._woken()

    # --- stopping

    async def _climb(self) -> None:
        for name, wait_s in (("SIGINT", self._request.int_s), ("SIGTERM", self._request.term_s)):
            if self._killing:
                break
            if not await self._signal(name):
                return
            self._steps.append(name)
            if await self._gone(wait_s):
                return
        if await self._signal("SIGKILL"):
            self._steps.append("SIGKILL")
        deadline = self._reactor.seconds() + SWEEP_LIMIT_S
        while self._exit is None and self._reactor.seconds() < deadline:
            await self._sleep(deadline - self._reactor.seconds())
        if self._exit is None:
            log.error("run {run_id}: process {pid} cannot be ended", run_id=self._request.run_id, pid=self.pid)
            self._close()
            self._finish(ProgramEnding(error="KILL did not end it.", steps=tuple(self._steps), processes_left=1))

    async def _signal(self, name: str) -> int:
        """Send one signal to each process of the run once; the number of them."""
        number = getattr(signal, name)
        group = 0
        if self._exit is None:
            await self._look()      # before the signal, which may cut the threads that lead to some of them
        if self._exit is None:      # not reaped, so the number is still its own
            try:
                os.killpg(self.pid, number)
                group = self.pid
            except OSError:         # the launcher has no session yet
                group = 0
        found = await self._look(number, group)
        return len(found) or int(bool(group))

    async def _gone(self, wait_s: float) -> bool:
        """Whether none is left within `wait_s`; looks at once when the program exits, else ever more rarely."""
        deadline = self._reactor.seconds() + wait_s
        pause_s = 0.05
        while not self._killing:
            left_s = deadline - self._reactor.seconds()
            if left_s <= 0:
                return False
            await self._sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 1.5, 0.5)
            if self._exit is not None and await self._none_left():
                return True
        return False

    async def _none_left(self) -> bool:
        """Two looks: a process in the middle of an exec shows no marker for an instant."""
        if await self._look():
            return False
        await self._sleep(LOOK_AGAIN_S, deaf=True)
        return not await self._look()

    async def _sweep(self, grace_s: float) -> int:
        """End what is left of the run; the number that could not be ended, -1 when that cannot be known."""
        try:
            if await self._none_left():
                return 0
            if grace_s:
                log.info("run {run_id}: its program left processes behind; ending them", run_id=self._request.run_id)
                await self._signal("SIGTERM")
                if await self._gone(grace_s):
                    return 0
            deadline = self._reactor.seconds() + SWEEP_LIMIT_S
            while self._reactor.seconds() < deadline:
                await self._signal("SIGKILL")
                await self._sleep(LOOK_AGAIN_S, deaf=True)
                if await self._none_left():
                    return 0
            return len(await self._look())
        except OSError as failure:
            log.warn("run {run_id}: its processes cannot be looked up: {reason}", run_id=self._request.run_id,
                     reason=str(failure))
            return -1

    async def _look(self, number: int = 0, spared_group: int = 0) -> list[processes.Process]:
        """What is left of the run, each given signal `number`."""
        found = await self._in_thread(partial(
            processes.members, self._marker, dict(self._known), (self.pid,), self._since_ticks, number=number,
            spared_group=spared_group))
        self._known.update((process.pid, process.start_ticks) for process in found)
        return found

    # --- ending

    async def _end(self) -> None:
        """From the exit to program_ended."""
        ending = self._exit or ProgramEnding(error="it ended")
        if REPORT in self._open:
            await self._sleep(DRAIN_QUIET_S)
        if self._report and not self._told_start:
            self._close()
            self._finish(ProgramEnding(error=self._explain()))
            return
        self._tell_start()
        if self._ladder is None and not self._paused:
            await self._drain()
        if self._ladder is not None:
            await _notice(self._ladder)
        left = await self._sweep(0.0 if self._ladder is not None else LEFT_BEHIND_S)
        self._finishing = True
        if self._open:
            for pipe in self._pipes():
                pipe.startReading()
            await self._drain()
        self._close()
        self._finish(ProgramEnding(exit_code=ending.exit_code, signal=ending.signal, steps=tuple(self._steps),
                                   processes_left=left))

    async def _drain(self) -> None:
        """Until the pipes end, or are quiet, or have had long enough."""
        now = self._read_at = self._reactor.seconds()
        deadline = now + DRAIN_LIMIT_S
        while self._open and now < deadline and not (self._paused and not self._finishing) and self._ladder is None:
            quiet_until = self._read_at + DRAIN_QUIET_S
            if now >= quiet_until:
                break
            await self._sleep(min(quiet_until, deadline) - now)
            now = self._reactor.seconds()

    def _explain(self) -> str:
        number, _, what = self._report.decode("ascii", "replace").strip().partition(" ")
        reason = os.strerror(int(number)) if number.isdigit() else "the launcher failed"
        if what == "folder":
            return f"The folder {self._request.cwd} cannot be entered: {reason}."
        return f"{self._request.argv[0]} could not be started: {reason}."

    def _close(self) -> None:
        if self.transport is not None:
            self.transport.loseConnection()

    def _finish(self, ending: ProgramEnding) -> None:
        if not self.ended.called:
            self._receiver.program_ended(ending)
            self.ended.callback(None)

    def _end_failed(self, failure: Failure) -> None:
        log.failure("run {run_id}: the end of its program went wrong", failure, run_id=self._request.run_id)
        self._close()
        ending = self._exit or ProgramEnding(error="it ended")
        self._finish(ProgramEnding(exit_code=ending.exit_code, signal=ending.signal, steps=tuple(self._steps),
                                   processes_left=-1))

    def _ladder_failed(self, failure: Failure) -> None:
        log.failure("run {run_id}: stopping its program went wrong", failure, run_id=self._request.run_id)
        if self._exit is None:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except OSError:
                log.warn("run {run_id}: its group is gone", run_id=self._request.run_id)

    # --- waiting

    def _in_thread(self, call: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        return threads.deferToThreadPool(self._reactor, self._reactor.getThreadPool(), call, *arguments)

    def _woken(self) -> None:
        if self._wake is not None:
            wake, self._wake = self._wake, None
            wake.callback(None)

    def _sleep(self, seconds: float, deaf: bool = False) -> Deferred[None]:
        """Fires after `seconds`, or earlier when woken by an exit, the end of the pipes or a kill."""
        waiting: Deferred[None] = Deferred()
        timer = self._reactor.callLater(seconds, waiting.callback, None)

        def over(value: None) -> None:
            if timer.active():
                timer.cancel()
            if self._wake is waiting:
                self._wake = None

        waiting.addCallback(over)
        if not deaf:
            self._wake = waiting
        return waiting

