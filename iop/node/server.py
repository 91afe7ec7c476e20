"""One model server of the node: started when somebody waits for it, looked at until it answers, unloaded when idle.

::

    cold --use--> queued --room--> starting --health 200--> warm --idle, unload, another's turn--> stopping --> cold
      ^                              |   ^                  |  ^ |
      |                        ended |   |      cut_off()   v  | | ended
      |                              v   |            doubted -+ |        (one that does not answer is ended)
      |                           resting +<---------------------+
      |                              |  after a back-off it is started again; after `restarts` in a row:
      +--------- FAILED_S ------- failed: who waits is told why, with the server's last words

What waits for it is served by whichever start of it answers first.
"""

from __future__ import annotations

from typing import Protocol

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger

from iop.errors import AdapterError, Conflict, Draining, IOPError
from iop.node.alarm import Alarm
from iop.node.server_crashes import Crashes, crash_sentence, told_again
from iop.node.server_health import Looking
from iop.node.server_note import Note
from iop.node.server_program import Means, ServerProgram
from iop.node.server_state import DOUBTED, FAILED, HOLDING_MEMORY, LOOKED_AT, QUEUED, RESTING, STOPPING, told_meanwhile
from iop.node.server_use import Use, Uses
from iop.node.server_waits import Waits
from iop.rendering import counted
from iop.servers import COLD, STARTING, WARM, ServerSpec, Told

log = Logger()

DOUBT_S = 10.0                       # one that does not answer any more is ended after so long
FAILED_S = 60.0                      # a crash loop is left alone for so long


class Keeper(Protocol):
    """What a server tells: all of them together."""

    def wants_room(self, server: Server) -> None:
        """It is queued: begin() is called when there is room."""

    def changed(self) -> None:
        """Its state is another one."""

    def freed(self) -> None:
        """Somebody needs it no more."""

    def next_attempt(self, spec: ServerSpec) -> int: ...


class Server:
    """See the module."""

    def __init__(self, spec: ServerSpec, means: Means, keeper: Keeper, folder: str) -> None:
        self.spec = spec
        self.state = COLD
        self.yielding = False                 # it goes once nobody uses it: another one waits for its memory
        self.retired = False                  # and this one is not configured any more
        self.program = ServerProgram(spec, means, folder, self._ended)
        self.waits = Waits(means.clock, self._gave_up)
        self.uses = Uses(means.clock, self._released, self._doubt)
        self._clock = means.clock
        self._keeper = keeper
        self._looking = Looking(means.clock, means.probe)
        self._began_s = 0.0                   # its start, and
        self._warm_s = 0.0                    # when it was ready
        self._crashes = Crashes(spec.restarts)
        self._error: IOPError | None = None
        self._alarm = Alarm(means.clock)      # the end of a rest, or of being idle
        self._closed: Deferred[None] | None = None

    @property
    def idle(self) -> bool:
        return not self.uses and not self.waits

    @property
    def holds_memory(self) -> bool:
        return self.state in HOLDING_MEMORY

    @property
    def why_not(self) -> str:
        """A sentence why it cannot run; empty when it can."""
        return self._error.message if self._error is not None else ""

    # --- who needs it

    def use(self, told: Told) -> Deferred[Use]:
        if self._error is not None:
            return fail(told_again(self._error))
        if self.state == WARM and not self.yielding:
            return succeed(self._admit())
        waiting = self.waits.add(told)
        self._want()
        if not waiting.was_told:
            waiting.tell(*self._how_far())
        return waiting.deferred

    def unload(self) -> None:
        """Raises Conflict while somebody needs it."""
        if not self.idle:
            raise Conflict(f"The server {self.spec.id} is in use ({counted(len(self.uses), 'run')} on it, {len(self.waits)} "
                           "waiting); cancel those, or wait.")
        self._leave()

    def let_others(self) -> None:
        """Go as soon as nobody uses it; who comes now waits until it is started again."""
        self.yielding = True
        self._leave_if_unused()

    def retire(self, why: str) -> None:
        """It is not configured any more: it goes as soon as nobody uses it."""
        if self.holds_memory and not self.retired and self.state != STOPPING:
            log.info("the server {name} is ended as soon as nobody uses it: {why}", name=self.spec.id, why=why)
        self.retired = True
        self._leave_if_unused()

    def _gave_up(self) -> None:
        if self.state == QUEUED and not self.waits:
            self._enter(COLD)
        self._idle_later()
        self._keeper.freed()

    def _admit(self) -> Use:
        self._alarm.clear()
        return self.uses.begin(self.program.url)

    def _released(self) -> None:
        self._leave_if_unused()
        self._idle_later()
        self._keeper.freed()

    def _doubt(self) -> None:
        """A request got no answer from it."""
        if self.state == WARM:
            self._alarm.clear()
            self._enter(DOUBTED)
            self._look(DOUBT_S, "it did not answer any more")

    def _want(self) -> None:
        if self.state == COLD and self._closed is None:
            self._enter(QUEUED)
            self._keeper.wants_room(self)

    def _enter(self, state: str) -> None:
        if state != self.state:
            self.state = state
            self._keeper.changed()

    # --- starting

    def begin(self) -> None:
        """There is room for it."""
        try:
            self.program.start(self._keeper.next_attempt(self.spec))
        except OSError as error:
            self._crashed(f"it could not be started: {error.strerror}")
        except IOPError as error:
            self._fail(error)
        else:
            self._started()

    def take_up(self, note: Note) -> None:
        """It runs since an earlier start of the node; or it did."""
        self.program.take_up(note)
        self._started()

    def _started(self) -> None:
        self._began_s = self._clock.seconds()
        self._enter(STARTING)
        self._look(self.spec.ready_s, f"it was not ready within {self.spec.ready_s:g} s (serve.ready_s)")

    def _look(self, limit_s: float, why: str) -> None:
        """Until it answers; one that does not in time is ended, for that reason, and its end tells the rest."""
        self._looking.begin(self.program.url + self.spec.health_path, limit_s, self._ready, self._tell,
                            lambda: self.program.kill(why))

    def _ready(self) -> None:
        if self.state == STARTING:
            self._warm_s = self._clock.seconds()
            log.info("the server {name} is ready after {seconds} s", name=self.spec.id,
                     seconds=round(self._warm_s - self._began_s, 1))
        self._enter(WARM)
        self.waits.serve(self._admit)
        self._leave_if_unused()
        self._idle_later()

    def _tell(self) -> None:
        self.waits.tell(*self._how_far())

    def _how_far(self) -> tuple[str, float]:
        """A detail, and the progress from 0 to 1."""
        progress = self.program.log.progress if self.state in LOOKED_AT else 0.0
        return told_meanwhile(self.spec.id, self.state), progress

    # --- its end

    def _ended(self, why: str) -> None:
        self._looking.stop()
        if self.state == STOPPING or (self.program.taken_up and self.idle):
            self._gone()
        else:
            self._crashed(why)

    def _gone(self) -> None:
        """It has left; who came meanwhile has it started again."""
        self._alarm.clear()
        self.yielding = False
        self.program.log.close()
        self._enter(COLD)
        if self._closed is not None:
            self._closed.callback(None)
        elif self.waits:
            self._want()

    def _crashed(self, why: str) -> None:
        log.warn("the server {name} is gone: {why}", name=self.spec.id, why=why)
        rest_s = self._crashes.add(self._clock.seconds() - self._warm_s if self.state in (WARM, DOUBTED) else 0.0)
        self.uses.forget()
        if self._closed is not None:
            self._gone()
        elif rest_s is None:
            log.error("the server {name} is given up for {seconds} s; what it said is in {file}", name=self.spec.id,
                      seconds=FAILED_S, file=self.program.log.path)
            self._fail(AdapterError(crash_sentence(self.spec.id, why, self.program.log.last_words())))
        else:
            self._enter(RESTING)
            self._tell()
            self._alarm.set(rest_s, self._again)

    def _again(self) -> None:
        """One that nobody has needed for long is not started again."""
        idle_s = self._clock.seconds() - self.uses.last_s
        if self.idle and (self.yielding or self.retired or (self.spec.idle_s and idle_s >= self.spec.idle_s)):
            self._gone()
        else:
            self.begin()

    def _fail(self, error: IOPError) -> None:
        self._error = error
        self._alarm.set(FAILED_S, self.forgive)
        self._enter(FAILED)
        self.waits.refuse(lambda: told_again(error))

    def forgive(self) -> None:
        """Let it be tried again."""
        if self.state == FAILED:
            self._error = None
            self._crashes.forget()
            self._gone()

    # --- leaving

    def _idle_later(self) -> None:
        if self.idle and self.spec.idle_s and self.state == WARM:
            self._alarm.set(self.spec.idle_s, self._idle_for_long)

    def _idle_for_long(self) -> None:
        if self.idle:
            log.info("the server {name} is unloaded: nobody has used it for {seconds} s", name=self.spec.id,
                     seconds=self.spec.idle_s)
            self._leave()

    def _leave_if_unused(self) -> None:
        """Whoever waited before it was to go is served first."""
        waits = self.waits and (self.retired or self.state != WARM)
        if (self.yielding or self.retired) and not self.uses and not waits and self.holds_memory:
            self._leave()

    def _leave(self) -> None:
        if self.state in (STARTING, WARM, DOUBTED):
            self._alarm.clear()
            self._looking.stop()
            self._enter(STOPPING)
            self.program.stop()
        elif self.state in (RESTING, QUEUED):
            self._gone()
        else:
            self.forgive()

    def close(self) -> Deferred[None]:
        """The node stops: nobody is served any more. Fires when nothing of it is left."""
        self._closed = closed = Deferred()
        self.waits.refuse(lambda: Draining("This node is stopping."))
        self.uses.forget()
        if self.holds_memory:
            self._leave()
        else:
            self._alarm.clear()
            closed.callback(None)
        return closed

    def let_go(self) -> None:
        """Another image of this process takes it up."""
        self._alarm.clear()
        self._looking.stop()
        self._closed = Deferred()
        self.program.let_go()
