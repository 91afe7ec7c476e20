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
from iop.node import journal, words
from iop.node.holder import Holder
from iop.node.remains import end_remains
from iop.proto.run_pb2 import CHANNEL_STDERR, CHANNEL_STDOUT
from iop.spawning import ProgramEnding, SpawnRequest

log = Logger()

READ_BYTES = 256 * 1024     # of the journal, in one turn of the reactor
INPUT_BYTES = 64 * 1024     # of standard input, in one word
KEPT_BYTES = 1024 * 1024    # the supervisor is told in such steps what it need not keep
CHANNELS = {journal.STDOUT: CHANNEL_STDOUT, journal.STDERR: CHANNEL_STDERR}
NEVER = "Its supervisor ended before it had started the program."
LOST = "The supervisor of the program was killed, so how the program ended is not known."
SHORT = "The journal of the program lacks what its supervisor wrote, so how the program ended is not known."


@implementer(IProgram)
class Program:
    """Made by a Spawner. `started(run_id, pid)` is told of the start before the receiver is."""

    def __init__(self, reactor: Any, folder: str, run_id: str, receiver: Any, offset: int,
                 started: Callable[[str, int], None]) -> None:
        self.pid = 0
        self.ended: Deferred[None] = Deferred()   # after program_ended
        self.holder = Holder(reactor, folder, self._grew, self._holder_gone)
        self._reactor = reactor
        self._run_id = run_id
        self._folder = folder
        self._receiver = IProgramReceiver(receiver)
        self._started = started
        self._reader = journal.Reader(folder, offset)
        self._grown = 0                           # how far it goes, as far as we were told
        self._taken_up = False                    # of an earlier start of this node
        self._paused = False
        self._turn: Any = None                    # the call that reads on
        self._kept_told = offset
        self._over = False                        # nothing is read any more
        self._exit: dict[str, int | None] = {}    # of the program itself, as the journal has it, and
        self._ending: ProgramEnding | None = None   # of all of it

    # --- beginning

    def begin(self, request: SpawnRequest, environment: Mapping[str, str]) -> None:
        """Give the supervisor what to start."""
        say = self.holder.say
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
            self.holder.say(words.KEPT, words.PLACE.pack(self._kept_told))
        self.holder.take_up()
        self.pid = self.holder.known.get("child", 0)

    def refuse(self, error: str) -> None:
        """It could not be begun; told in the next turn."""
        self._over = True
        self._reactor.callLater(0, self._finish, ProgramEnding(error=error))

    # --- IProgram

    def write(self, data: bytes) -> None:
        for at in range(0, len(data), INPUT_BYTES):
            self.holder.say(words.INPUT, data[at:at + INPUT_BYTES])

    def close_input(self) -> None:
        self.holder.say(words.CLOSE_INPUT)

    def stop(self) -> None:
        self.holder.end(words.STOP)

    def kill(self) -> None:
        """Cut the ladder short."""
        self.holder.end(words.KILL)
        self.resume()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._read_soon()

    def kept(self, offset: int) -> None:
        if offset - self._kept_told >= KEPT_BYTES:
            self._kept_told = offset
            self.holder.say(words.KEPT, words.PLACE.pack(offset))

    # --- the supervisor

    def _grew(self, offset: int) -> None:
        self._grown = offset
        if self._turn is None and not self._over:
            self._read()

    def _holder_gone(self) -> None:
        if self._ending is not None:
            self._finish(self._ending)
        else:
            self._read_soon()

    @property
    def _gone(self) -> bool:
        return self.holder.state == "gone"

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
            for record in journal.joined(found):
                self._tell(record)
                if self._over:
                    return
                if self._paused:
                    self._reader.offset = record.offset
                    return
        except (OSError, journal.Damaged) as fault:
            self._cannot_read(fault)
            return
        if found and (self._gone or self._reader.offset < self._grown):
            self._read_soon()
        elif self._gone and not found:
            self._lose(LOST if self._reader.offset >= self._grown else SHORT,
                       begun=bool(self.holder.known or self._reader.offset))

    def _tell(self, record: journal.Record) -> None:
        if record.kind in CHANNELS:
            self._receiver.output_received(CHANNELS[record.kind], record.payload, record.offset)
        elif record.kind in (journal.HEAD, journal.STARTED):
            self.holder.known.update(record.fields())
            if record.kind == journal.STARTED:
                self.pid = self.holder.known["child"]
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

    def _lose(self, sentence: str, begun: bool = True) -> None:
        self._over = True
        ended = end_remains(self._reactor, self._run_id, self.holder.known, self._folder)
        ended.addCallbacks(self._lost, self._not_looked_up, callbackArgs=(sentence, begun), errbackArgs=(sentence,))
        ended.addErrback(lambda failure: log.failure("run {run_id}: telling its end failed", failure, run_id=self._run_id))

    def _lost(self, counted: tuple[int, int], sentence: str, begun: bool) -> None:
        found, left = counted
        found = max(found, int(self.holder.witnessed))
        if not begun and not found:
            self._finish(ProgramEnding(error=NEVER, interrupted=self._taken_up))
            return
        self._finish(ProgramEnding(lost=sentence, found=found, processes_left=left, **self._exit))

    def _not_looked_up(self, failure: Failure, sentence: str) -> None:
        log.failure("run {run_id}: what is left of it cannot be looked up", failure, run_id=self._run_id)
        self._finish(ProgramEnding(lost=sentence, processes_left=-1, **self._exit))

    def _finish(self, ending: ProgramEnding) -> None:
        self._reader.close()
        try:
            self._receiver.program_ended(ending)
        finally:
            self.ended.callback(None)
