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

from collections.abc import Callable, Iterable
from typing import Protocol

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from zope.interface import implementer

from iop.errors import AdapterError, Conflict, Draining, IOPError
from iop.interfaces import IServerUse
from iop.node.server_health import Looking
from iop.node.server_program import Means, Note, ServerProgram, how
from iop.node.server_waits import Told, Waiting
from iop.rendering import counted
from iop.servers import ServerSpec
from iop.spawning import ProgramEnding

log = Logger()

DOUBT_S = 10.0                       # one that does not answer any more is ended after so long
REST_S, REST_MOST_S = 0.5, 30.0      # before it is started again; doubled each time in a row
STEADY_S = 60.0                      # one that was warm for so long has not crashed in a row
FAILED_S = 60.0                      # a crash loop is left alone for so long

COLD, QUEUED, STARTING, WARM, DOUBTED, RESTING, STOPPING, FAILED = (
    "cold", "queued", "starting", "warm", "doubted", "resting", "stopping", "failed")


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
        self.used_s = means.clock.seconds()
        self.yielding = False                 # it goes once nobody uses it: another one waits for its memory
        self.retired = False                  # and this one is not configured any more
        self.program = ServerProgram(spec, means, folder, self._ended)
        self._clock = means.clock
        self._keeper = keeper
        self._looking = Looking(means.clock, means.probe)
        self._waiting: list[Waiting] = []
        self._users: set[Use] = set()
        self._began_s = 0.0                   # its start, and
        self._warm_s = 0.0                    # when it was ready
        self._crashes = 0                     # in a row
        self._why = ""                        # we have ended it, for this reason
        self._taken_up = False
        self._error: IOPError | None = None
        self._timer: IDelayedCall | None = None
        self._closed: Deferred[None] | None = None

    @property
    def url(self) -> str:
        return self.program.url

    @property
    def users(self) -> int:
        return len(self._users)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        return not self._users and not self._waiting

    @property
    def holds_memory(self) -> bool:
        return self.state in (STARTING, WARM, DOUBTED, RESTING, STOPPING)

    @property
    def sentence(self) -> str:
        """Why it cannot run; empty when it can."""
        return self._error.message if self._error is not None else ""

    # --- who needs it

    def use(self, told: Told) -> Deferred[Use]:
        if self._error is not None:
            return fail(self._failure())
        if self.state == WARM and not self.yielding:
            return succeed(self._admit())
        waiting = Waiting(self._clock, told, self._gave_up)
        self._waiting.append(waiting)
        self._want()
        if not waiting.was_told:
            self._tell([waiting])
        return waiting.deferred

    def unload(self) -> None:
        """Raises Conflict while somebody needs it."""
        if not self.idle:
            raise Conflict(f"The server {self.spec.id} is in use ({counted(self.users, 'run')} on it, {self.waiting} "
                           "waiting); cancel those, or wait.")
        self._leave()

    def let_others(self) -> None:
        """Go as soon as nobody uses it; who comes now waits until it is started again."""
        self.yielding = True
        self._leave_if_unused()

    def retire(self) -> None:
        self.retired = True
        self._leave_if_unused()

    def _gave_up(self, waiting: Waiting) -> None:
        self._waiting.remove(waiting)
        if self.state == QUEUED and not self._waiting:
            self._enter(COLD)
        elif self.state == WARM:
            self._idle_later()
        self._keeper.freed()

    def _admit(self) -> Use:
        use = Use(self, self.url)
        self._users.add(use)
        self.used_s = self._clock.seconds()
        self._set_timer()
        return use

    def released(self, use: Use) -> None:
        if use in self._users:
            self._users.discard(use)
            self.used_s = self._clock.seconds()
            self._leave_if_unused()
            if self.state == WARM:
                self._idle_later()
            self._keeper.freed()

    def doubt(self) -> None:
        """A request got no answer from it."""
        if self.state == WARM:
            self._set_timer()
            self._enter(DOUBTED)
            self._look(DOUBT_S, "it did not answer any more")

    def _want(self) -> None:
        if self.state == COLD and self._closed is None:
            self._enter(QUEUED)
            self._keeper.wants_room(self)

    # --- starting

    def begin(self) -> None:
        """There is room for it."""
        self._why, self._taken_up = "", False
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
        self._taken_up = True
        self.program.take_up(note)
        self._started()

    def _started(self) -> None:
        self._began_s = self._clock.seconds()
        self._enter(STARTING)
        self._look(self.spec.ready_s, f"it was not ready within {self.spec.ready_s:g} s (serve.ready_s)")

    def _look(self, limit_s: float, why: str) -> None:
        def end_it() -> None:                 # its end tells the rest
            self._why = why
            self.program.kill()

        self._looking.begin(self.url + self.spec.health_path, limit_s, self._ready, lambda: self._tell(self._waiting), end_it)

    def _ready(self) -> None:
        if self.state == STARTING:
            self._warm_s = self._clock.seconds()
            log.info("the server {name} is ready after {seconds} s", name=self.spec.id,
                     seconds=round(self._warm_s - self._began_s, 1))
        self._enter(WARM)
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.serve(self._admit())
        self._leave_if_unused()
        self._idle_later()

    def _tell(self, waiting: Iterable[Waiting]) -> None:
        name, progress = self.spec.id, 0.0
        if self.state in (STARTING, DOUBTED):
            detail, progress = name, self.program.log.progress
        elif self.state == RESTING:
            detail = f"{name} has ended and is about to be started again"
        else:
            detail = f"{name} is to be started"
        for one in list(waiting):
            one.tell(detail, progress)

    def tell_reason(self, reason: str) -> None:
        """Why it is not even begun."""
        for one in list(self._waiting):
            one.tell(reason, 0.0)

    # --- its end

    def _ended(self, ending: ProgramEnding) -> None:
        self._looking.stop()
        if self.state == STOPPING or (self._taken_up and self.idle):
            self._gone()
        else:
            self._crashed(self._why or how(ending))

    def _gone(self) -> None:
        """It has left; who came meanwhile has it started again."""
        self._set_timer()
        self.yielding = False
        self.program.log.close()
        self._enter(COLD)
        if self._closed is not None:
            self._closed.callback(None)
        elif self._waiting:
            self._want()

    def _crashed(self, why: str) -> None:
        words = self.program.log.last_words()
        log.warn("the server {name} is gone: {why}", name=self.spec.id, why=why)
        now = self._clock.seconds()
        if self.state in (WARM, DOUBTED) and now - self._warm_s >= STEADY_S:
            self._crashes = 0
        self._crashes += 1
        self._users.clear()
        sentence = f"The server {self.spec.id}: {why}." + (f" Its last words: {words}" if words else " It said nothing.")
        if self._closed is not None:
            self._gone()
        elif self._crashes > self.spec.restarts:
            log.error("the server {name} is given up for {seconds} s; what it said is in {file}", name=self.spec.id,
                      seconds=FAILED_S, file=self.program.log.path)
            self._fail(AdapterError(sentence))
        else:
            self._enter(RESTING)
            self._tell(self._waiting)
            self._set_timer(min(REST_S * 2 ** (self._crashes - 1), REST_MOST_S), self._again)

    def _again(self) -> None:
        """One that nobody has needed for long is not started again."""
        idle_s = self._clock.seconds() - self.used_s
        if self.idle and (self.yielding or self.retired or (self.spec.idle_s and idle_s >= self.spec.idle_s)):
            self._gone()
        else:
            self.begin()

    def _fail(self, error: IOPError) -> None:
        self._error = error
        waiting, self._waiting = self._waiting, []
        self._set_timer(FAILED_S, self.forgive)
        self._enter(FAILED)
        for one in waiting:
            one.refuse(self._failure())

    def forgive(self) -> None:
        """Let it be tried again."""
        if self.state == FAILED:
            self._error, self._crashes = None, 0
            self._gone()

    def _failure(self) -> IOPError:
        """One of its own for each who is told; another node may be able to."""
        error = type(self._error)(self.sentence)     # type: ignore[misc]
        if isinstance(error, AdapterError):
            error.retryable = True                   # type: ignore[misc]
        return error

    # --- leaving

    def _idle_later(self) -> None:
        if self.idle and self.spec.idle_s and self.state == WARM:
            self._set_timer(self.spec.idle_s, self._idle_for_long)

    def _idle_for_long(self) -> None:
        if self.idle:
            log.info("the server {name} is unloaded: nobody has used it for {seconds} s", name=self.spec.id,
                     seconds=self.spec.idle_s)
            self._leave()

    def _leave_if_unused(self) -> None:
        """Whoever waited before it was to go is served first."""
        waits = self._waiting and (self.retired or self.state != WARM)
        if (self.yielding or self.retired) and not self._users and not waits and self.holds_memory:
            self._leave()

    def _leave(self) -> None:
        if self.state in (STARTING, WARM, DOUBTED):
            self._set_timer()
            self._looking.stop()
            self._enter(STOPPING)
            self.program.stop()
        elif self.state in (RESTING, QUEUED):
            self._gone()
        else:
            self.forgive()

    def close(self) -> Deferred[None]:
        """The node stops: nobody is served any more. Fires when nothing of it is left."""
        self._closed = Deferred()
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.refuse(Draining("This node is stopping."))
        self._users.clear()
        closed = self._closed
        if self.holds_memory:
            self._leave()
        else:
            self._set_timer()
            closed.callback(None)
        return closed

    def let_go(self) -> None:
        """Another image of this process takes it up."""
        self._set_timer()
        self._looking.stop()
        self._closed = Deferred()
        self.program.let_go()

    # --- small things

    def _enter(self, state: str) -> None:
        if state != self.state:
            self.state = state
            self._keeper.changed()

    def _set_timer(self, seconds: float = 0.0, call: Callable[[], None] | None = None) -> None:
        """There is one at most: the end of a rest, or of being idle."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = self._clock.callLater(seconds, call) if call is not None else None


@implementer(IServerUse)
class Use:
    """A hold on a warm Server."""

    def __init__(self, server: Server, url: str) -> None:
        self.url = url
        self._server = server

    def release(self) -> None:
        self._server.released(self)

    def cut_off(self) -> None:
        self._server.doubt()
        self.release()
