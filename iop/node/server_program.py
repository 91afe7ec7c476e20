"""The program of one model server: started under a supervisor, or taken up after one start of the node by the next.

The note of iop.node.server_note tells the next start of the node what it is that runs there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from twisted.logger import Logger
from zope.interface import implementer

from iop.interfaces import IProgramReceiver
from iop.node.server_health import Probe
from iop.node.server_log import ServerLog
from iop.node.server_note import Note, spawn_id, write_note
from iop.requirements import Program
from iop.servers import ServerSpec
from iop.spawning import ProgramEnding, SpawnRequest

log = Logger()

INT_S, TERM_S = 2.0, 5.0             # of its ladder
KEPT_BYTES = 1024 * 1024             # of what it says, until the supervisor is told that it is in the log


@dataclass(frozen=True)
class Means:
    """What all servers of a node are started with."""

    clock: Any
    spawner: Any
    environment: Callable[[], Mapping[str, str]]
    require: Callable[[Iterable[Program]], None]
    probe: Probe
    free_port: Callable[[str, int], int]      # (host, the wanted one or 0)


class ServerProgram:
    """One start of it at a time; `ended(why)` is called once for each, with a clause."""

    def __init__(self, spec: ServerSpec, means: Means, folder: str, ended: Callable[[str], None]) -> None:
        self.log = ServerLog(folder)
        self.pid = 0
        self.url = ""
        self.taken_up = False            # an earlier start of the node has started it
        self._spec = spec
        self._means = means
        self._folder = folder
        self._ended = ended
        self._program: Any = None
        self._port = 0
        self._attempt = 0
        self._kept = 0
        self._why = ""                   # we have ended it, for this reason

    def start(self, attempt: int) -> None:
        """Raises OSError, and PolicyDenied."""
        spec = self._spec
        self.log.begin()
        self._means.require([spec.program])
        work = os.path.join(self._folder, "work")
        for folder in (os.path.dirname(self._folder), self._folder, work):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        self._begin(self._means.free_port(spec.host, spec.port), attempt, 0)
        self._note()
        argv, env = spec.filled(self._port)
        environment = {**self._means.environment(), **env}
        found = argv[0] if "/" in argv[0] else shutil.which(argv[0], path=environment.get("PATH", ""))
        log.info("starting the server {name} at {url}", name=spec.id, url=self.url)
        self._program = self._means.spawner.spawn(
            SpawnRequest(run_id=spawn_id(spec), attempt=attempt, argv=(found or argv[0], *argv[1:]), cwd=spec.cwd or work,
                         env=environment, int_s=INT_S, term_s=TERM_S), Ears(self, attempt))

    def take_up(self, note: Note) -> None:
        """It runs since an earlier start of the node; or it did."""
        self._begin(note.port, note.attempt, note.kept)
        self.taken_up = True
        self._program = self._means.spawner.take_up(spawn_id(self._spec), note.attempt, Ears(self, note.attempt), note.kept)

    def stop(self) -> None:
        self._program.stop()

    def kill(self, why: str) -> None:
        self._why = why
        self._program.kill()

    def let_go(self) -> None:
        """Hear no more of it: another image of this process takes it up."""
        if self._program is not None:
            self._program.pause()
        self.log.close()

    def _begin(self, port: int, attempt: int, kept: int) -> None:
        self._port, self._attempt, self._kept = port, attempt, kept
        self.taken_up, self._why = False, ""
        self.url = self._spec.url(port)

    def _note(self) -> None:
        write_note(self._folder, Note(self._spec, self._port, self._attempt, self._kept))

    # --- what it does

    def started(self, pid: int, attempt: int) -> None:
        if attempt == self._attempt:
            self.pid = pid

    def said(self, data: bytes, offset: int, attempt: int) -> None:
        self.log.write(data)
        if attempt == self._attempt and self._program is not None and offset - self._kept >= KEPT_BYTES:
            self._kept = offset
            try:
                self._note()
            except OSError:                      # then the journal keeps it
                return
            self._program.kept(offset)

    def ended(self, ending: ProgramEnding, attempt: int) -> None:
        self._means.spawner.discard(spawn_id(self._spec), attempt).addErrback(
            lambda failure: log.failure("what is kept of the server {name} cannot be removed", failure, name=self._spec.id))
        if attempt == self._attempt:
            self._program, self.pid, self.url = None, 0, ""
            self._ended(self._why or how(ending))


@implementer(IProgramReceiver)
class Ears:
    """Hears one start of it."""

    def __init__(self, program: ServerProgram, attempt: int) -> None:
        self._program = program
        self._attempt = attempt

    def program_started(self, pid: int) -> None:
        self._program.started(pid, self._attempt)

    def output_received(self, channel: int, data: bytes, offset: int) -> None:
        self._program.said(data, offset, self._attempt)

    def program_ended(self, ending: ProgramEnding) -> None:
        self._program.ended(ending, self._attempt)


def how(ending: ProgramEnding) -> str:
    """How its program ended, as a clause."""
    if ending.error:
        return f"it could not be started: {ending.error.rstrip('.')}"
    if ending.exit_code is not None:
        return f"it ended with exit code {ending.exit_code}"
    return f"it was ended by signal {ending.signal}" if ending.signal else "it was killed with its supervisor"
