"""One program, from its launcher to the last of its descendants.

::

    start --> launcher --exec--> running --exit--> drain --> sweep --> ended
                 |                  |                          ^
                 +-- no such file   +-- stop: INT, TERM, KILL -+

The end is the program's exit and a short drain, not the end of its pipes: a grandchild may hold those for hours. What
carries the run's marker then, or is known to descend from it, is killed before the ending is told.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from twisted.internet import protocol
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from iop.interfaces import IProgram, IProgramReceiver
from iop.node.ladder import LEFT_BEHIND_S, Ladder, Waits
from iop.proto.run_pb2 import CHANNEL_STDERR, CHANNEL_STDOUT
from iop.spawning import ProgramEnding, SpawnRequest

log = Logger()

LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launcher.py")
CHANNELS = {1: CHANNEL_STDOUT, 2: CHANNEL_STDERR}
REPORT = 3                # the launcher's word on the exec
DRAIN_QUIET_S = 1.0       # after the exit: pipes that say nothing for this long are closed
DRAIN_LIMIT_S = 5.0       # and all are, after this long


@implementer(IProgram)
class Program(protocol.ProcessProtocol):
    """Started by a Spawner."""

    def __init__(self, reactor: Any, request: SpawnRequest, receiver: Any) -> None:
        self.pid = 0
        self.ended: Deferred[None] = Deferred()   # after program_ended
        self._reactor = reactor
        self._request = request
        self._receiver = IProgramReceiver(receiver)
        self._waits = Waits(reactor)
        self._ladder: Ladder | None = None        # once there is a pid
        self._climbing: Deferred[None] | None = None
        self._report = b""
        self._told_start = False
        self._exit: ProgramEnding | None = None
        self._open = {*CHANNELS, REPORT}
        self._paused = False
        self._finishing = False                   # pauses do not count any more: what is left in the pipes is little
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
            self._reactor.callLater(0, self._finish, ProgramEnding(
                error=f"{request.argv[0]} could not be started: {failure}."))
            return
        finally:
            os.close(null)
        self.pid = transport.pid
        self._ladder = Ladder(self._reactor, self._waits, request.run_id, self.pid, lambda: self._exit is not None)
        if request.stdin is not None:
            self.write(request.stdin)
            if not request.keep_input:
                self.close_input()

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
        self._receiver.output_received(CHANNELS[childFD], data, 0)

    def childConnectionLost(self, childFD: int) -> None:
        self._open.discard(childFD)
        if childFD == REPORT:
            self._tell_start()
        if not self._open or childFD == REPORT:
            self._waits.wake()

    def processExited(self, reason: Failure) -> None:
        self._exit = ProgramEnding(exit_code=reason.value.exitCode, signal=reason.value.signal)
        self._waits.wake()
        Deferred.fromCoroutine(self._end(self._exit)).addErrback(self._end_failed, self._exit)

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
        if self._ladder is not None and self._climbing is None and self._exit is None:
            self._climbing = Deferred.fromCoroutine(self._climb(self._ladder))
            self._climbing.addErrback(self._climb_failed)

    def kill(self) -> None:
        """Cut the ladder short."""
        if self._ladder is not None:
            self._ladder.hurried = True
        self.stop()
        self._waits.wake()

    # --- stopping

    async def _climb(self, ladder: Ladder) -> None:
        if not await ladder.climb(self._request.int_s, self._request.term_s):
            log.error("run {run_id}: process {pid} cannot be ended", run_id=self._request.run_id, pid=self.pid)
            self._close()
            self._finish(ProgramEnding(error="KILL did not end it.", steps=tuple(ladder.steps), processes_left=1))

    def _climb_failed(self, failure: Failure) -> None:
        log.failure("run {run_id}: stopping its program went wrong", failure, run_id=self._request.run_id)
        if self._ladder is not None:
            self._ladder.kill_group()

    # --- ending

    async def _end(self, ending: ProgramEnding) -> None:
        """From the exit to program_ended."""
        if REPORT in self._open:
            await self._waits.sleep(DRAIN_QUIET_S)
        if self._report and not self._told_start:
            self._close()
            self._finish(ProgramEnding(error=self._explain()))
            return
        self._tell_start()
        if self._climbing is None and not self._paused:
            await self._drain()
        if self._climbing is not None:
            await _notice(self._climbing)
        left = await self._ladder.sweep(0.0 if self._climbing is not None else LEFT_BEHIND_S) if self._ladder else 0
        self._finishing = True
        if self._open:
            for pipe in self._pipes():
                pipe.startReading()
            await self._drain()
        self._close()
        self._tell_end(ending, left)

    async def _drain(self) -> None:
        """Until the pipes end, or are quiet, or have had long enough; a pause that is wanted ends it too."""
        now = self._read_at = self._reactor.seconds()
        deadline = now + DRAIN_LIMIT_S
        while self._open and now < deadline and not (self._paused and not self._finishing):
            quiet_until = self._read_at + DRAIN_QUIET_S
            if now >= quiet_until:
                break
            await self._waits.sleep(min(quiet_until, deadline) - now)
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

    def _tell_end(self, ending: ProgramEnding, left: int) -> None:
        steps = tuple(self._ladder.steps) if self._ladder is not None else ()
        self._finish(ProgramEnding(exit_code=ending.exit_code, signal=ending.signal, steps=steps, processes_left=left))

    def _end_failed(self, failure: Failure, ending: ProgramEnding) -> None:
        log.failure("run {run_id}: the end of its program went wrong", failure, run_id=self._request.run_id)
        self._close()
        self._tell_end(ending, -1)

    def _finish(self, ending: ProgramEnding) -> None:
        if not self.ended.called:
            self._receiver.program_ended(ending)
            self.ended.callback(None)


def _notice(source: Deferred[None]) -> Deferred[None]:
    """A Deferred of one's own that fires when `source` does."""
    notice: Deferred[None] = Deferred()

    def passed(value: None) -> None:
        notice.callback(None)

    source.addCallback(passed)
    return notice
