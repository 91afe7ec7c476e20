"""One program as its node sees it: words to its supervisor, and the journal that the supervisor writes.

::

    begin ----+                      +-- `ended` in the journal --------------------------------> ended
              +--> told record by record
    take up --+                      +-- supervisor gone, no `ended` --> what is left is killed --> lost

The output is read from the journal's files, always in the same way: while the supervisor lives, after a restart of this
node, and when the supervisor is no more. The socket only says that there is something to read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from iop.interfaces import IProgram, IProgramReceiver
from iop.node import control, journal, processes, words
from iop.node.remains import Watched, end_remains, same
from iop.proto.run_pb2 import CHANNEL_STDERR, CHANNEL_STDOUT
from iop.spawning import ProgramEnding, SpawnRequest

log = Logger()

READ_BYTES = 256 * 1024     # of the journal, in one turn of the reactor
INPUT_BYTES = 64 * 1024     # of standard input, in one word
KEPT_BYTES = 1024 * 1024    # the supervisor is told in such steps what it need not keep
BUSY_S = 0.05               # a supervisor whose backlog is full is asked again
CHANNELS = {journal.STDOUT: CHANNEL_STDOUT, journal.STDERR: CHANNEL_STDERR}
NEVER = "Its supervisor ended before it had started the program."
LOST = "The supervisor of the program was killed, so how the program ended is not known."


@implementer(IProgram)
class Program:
    """Made by a Spawner. `started(run_id, pid)` is told of the start before the receiver is."""

    def __init__(self, reactor: Any, folder: str, run_id: str, receiver: Any, offset: int,
                 started: Callable[[str, int], None]) -> None:
        self.pid = 0
        self.ended: Deferred[None] = Deferred()   # after program_ended
        self.supervisor = 0                       # its pid
        self._reactor = reactor
        self._folder = folder
        self._run_id = run_id
        self._receiver = IProgramReceiver(receiver)
        self._started = started
        self._reader = journal.Reader(folder, offset)
        self._control = control.Control(self._grew, self._disconnected)
        self._known: dict[str, Any] = {}          # whose journal it is
        self._grown = 0                           # how far it goes, as far as we were told
        self._taken_up = False                    # of an earlier start of this node
        self._watched = False                     # its end will be told
        self._gone = False                        # the supervisor is no more
        self._paused = False
        self._turn: Any = None                    # the call that reads on
        self._kept_told = offset
        self._witnessed = False                   # it lived when its supervisor was gone
        self._over = False                        # nothing is read any more
        self._exit: dict[str, int | None] = {}    # of the program itself, as the journal has it, and
        self._ending: ProgramEnding | None = None   # of all of it
        self._unsaid: list[tuple[int, bytes]] = []  # before the connection

    # --- beginning

    def connect(self) -> None:
        """To a supervisor that is about to start, or that an earlier start of this node left. Raises OSError."""
        control.connect(self._reactor, self._folder, self._control)
        unsaid, self._unsaid = self._unsaid, []
        for kind, payload in unsaid:
            self._control.say(kind, payload)

    def _say(self, kind: int, payload: bytes = b"") -> None:
        if self._control.connected:
            self._control.say(kind, payload)
        elif not self._gone:
            self._unsaid.append((kind, payload))

    def begin(self, request: SpawnRequest, environment: Mapping[str, str]) -> None:
        """Give the supervisor what to start."""
        say = self._say
        null = request.stdin is None and not request.keep_input
        say(words.REQUEST, json.dumps({
            "run_id": request.run_id, "argv": list(request.argv), "cwd": request.cwd, "env": dict(environment), "null": null,
            "int_s": request.int_s, "term_s": request.term_s}).encode())
        if request.stdin is not None:
            self.write(request.stdin)
            if not request.keep_input:
                self.close_input()
        say(words.GO)

    def take_up(self) -> None:
        """Go on with what an earlier start of this node began, living or not."""
        self._taken_up = True
        if self._kept_told:
            self._say(words.KEPT, words.PLACE.pack(self._kept_told))
        self._known = journal.identity(self._folder)
        self.pid = self._known.get("child", 0)
        if same(self._known, "pid", "ticks"):
            self.watch(self._known["pid"], self._known["ticks"])
        elif self._known:
            processes.reap(self._known["pid"], self._known["ticks"])   # it was ours before a re-exec
        self._reach()

    def _reach(self) -> None:
        try:
            self.connect()
        except BlockingIOError:
            self._reactor.callLater(BUSY_S, self._reach)
        except OSError:
            self._disconnected()

    def watch(self, pid: int, start_ticks: int) -> None:
        self.supervisor = pid
        try:
            Watched(self._reactor, pid, start_ticks, self._supervisor_gone)
            self._watched = True
        except OSError:                           # gone already
            processes.reap(pid, start_ticks)

    def refuse(self, error: str) -> None:
        """It could not be begun; told in the next turn."""
        self._over = True
        self._reactor.callLater(0, self._finish, ProgramEnding(error=error))

    # --- IProgram

    def write(self, data: bytes) -> None:
        for at in range(0, len(data), INPUT_BYTES):
            self._say(words.INPUT, data[at:at + INPUT_BYTES])

    def close_input(self) -> None:
        self._say(words.CLOSE_INPUT)

    def stop(self) -> None:
        self._say(words.STOP)

    def kill(self) -> None:
        """Cut the ladder short."""
        self._say(words.KILL)
        self.resume()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._read_soon()

    def kept(self, offset: int) -> None:
        if offset - self._kept_told >= KEPT_BYTES:
            self._kept_told = offset
            self._say(words.KEPT, words.PLACE.pack(offset))

    # --- the supervisor

    def _grew(self, offset: int) -> None:
        self._grown = offset
        if self._turn is None and not self._over:
            self._read()

    def _disconnected(self) -> None:
        """It is about to be gone; until it has been reaped it may still look alive."""
        if not self._over:
            self._known = self._known or journal.identity(self._folder)
            self._witnessed = same(self._known, "child", "child_ticks")
        if not self._watched:
            self._supervisor_gone()

    def _supervisor_gone(self) -> None:
        self._gone = True
        self._watched = False
        if self._ending is not None:
            self._finish(self._ending)
        elif not self._over:
            self._known = self._known or journal.identity(self._folder)
            self._read_soon()

    # --- the journal

    def _read_soon(self) -> None:
        if self._turn is None and not self._paused and not self._over:
            self._turn = self._reactor.callLater(0, self._read)

    def _read(self) -> None:
        """One turn's worth; the rest in the next one."""
        self._turn = None
        if self._paused or self._over:
            return
        try:
            found = self._reader.read(READ_BYTES)
        except (OSError, journal.Damaged) as fault:
            self._cannot_read(fault)
            return
        for record in _joined(found):
            self._tell(record)
            if self._over:
                return
            if self._paused:
                self._reader.offset = record.offset
                return
        if found and (self._gone or self._reader.offset < self._grown):
            self._read_soon()
        elif self._gone and not found:
            self._lose(LOST)

    def _tell(self, record: journal.Record) -> None:
        if record.kind in CHANNELS:
            self._receiver.output_received(CHANNELS[record.kind], record.payload, record.offset)
        elif record.kind in (journal.HEAD, journal.STARTED):
            self._known.update(record.fields())
            if record.kind == journal.STARTED:
                self.pid = self._known["child"]
                self._started(self._run_id, self.pid)
                self._receiver.program_started(self.pid)
        elif record.kind == journal.EXITED:
            self._exit = record.fields()
        elif record.kind == journal.ENDED:
            told = record.fields()
            self._over = True
            self._ending = ProgramEnding(exit_code=told["exit_code"], signal=told["signal"], error=told["error"],
                                         steps=tuple(told["steps"]), processes_left=told["processes_left"])
            if self._gone:                        # else in a moment: nothing is left when the end is told
                self._finish(self._ending)

    def _cannot_read(self, fault: Exception) -> None:
        """Behind a damaged place nothing can be trusted; the program must not run on unheard."""
        if self._gone:
            self._lose(LOST)
            return
        self.kill()
        log.error("run {run_id}: the journal of its program cannot be read ({fault}); ending it", run_id=self._run_id,
                  fault=str(fault))
        self._lose(f"The journal of the program cannot be read: {fault}")

    # --- the end

    def _lose(self, sentence: str) -> None:
        self._over = True
        if not self._known and not self._reader.offset:
            self._finish(ProgramEnding(error=NEVER, interrupted=self._taken_up))
            return
        ended = end_remains(self._reactor, self._run_id, self._known)
        ended.addCallbacks(self._lost, self._not_looked_up, callbackArgs=(sentence,), errbackArgs=(sentence,))
        ended.addErrback(lambda failure: log.failure("run {run_id}: telling its end failed", failure, run_id=self._run_id))

    def _lost(self, counted: tuple[int, int], sentence: str) -> None:
        found, left = counted
        self._finish(ProgramEnding(lost=sentence, found=max(found, int(self._witnessed)), processes_left=left, **self._exit))

    def _not_looked_up(self, failure: Failure, sentence: str) -> None:
        log.failure("run {run_id}: what is left of it cannot be looked up", failure, run_id=self._run_id)
        self._finish(ProgramEnding(lost=sentence, processes_left=-1, **self._exit))

    def _finish(self, ending: ProgramEnding) -> None:
        self._over = True
        self._reader.close()
        try:
            self._receiver.program_ended(ending)
        finally:
            self.ended.callback(None)


def _joined(found: list[journal.Record]) -> list[journal.Record]:
    """Output of one channel in a row as one record: what a program says in small pieces is told in one."""
    joined: list[journal.Record] = []
    row: list[bytes] = []
    for record in found:
        if joined and record.kind in CHANNELS and record.kind == joined[-1].kind:
            row.append(record.payload)
            joined[-1] = record
            continue
        _close_row(joined, row)
        joined.append(record)
        row = [record.payload]
    _close_row(joined, row)
    return joined


def _close_row(joined: list[journal.Record], row: list[bytes]) -> None:
    if len(row) > 1:
        joined[-1] = joined[-1]._replace(payload=b"".join(row))
