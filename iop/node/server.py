"""One model server of the node: started when somebody waits for it, looked at until it answers, unloaded when idle.

::

    cold --use--> queued --room--> starting --health 200--> warm --idle, unload, another's turn--> stopping --> cold
                     ^                |  ^                   |  |
                     |          ended |  +---- doubted <-----+  | ended        (doubted: a request got no answer)
                     |                v           (health?)     v
                     |             resting <--------------------+
                     |                |  after a back-off: starting again; `restarts` times in a row, then
                     +-- REST_S ------+--> failed: who waits is told why, with the server's last words

What waits for it is served by whichever start of it answers first.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from iop.errors import AdapterError, Conflict, Draining, IOPError
from iop.files import write_private
from iop.interfaces import IProgramReceiver, IServerUse
from iop.node.server_log import ServerLog
from iop.node.server_waits import Told, Waiting
from iop.rendering import counted
from iop.requirements import Program
from iop.servers import ServerSpec
from iop.spawning import ProgramEnding, SpawnRequest

log = Logger()

LOOK_S, LOOK_MOST_S = 0.05, 1.0      # between two looks at its health; each pause is half as long again
DOUBT_S = 10.0                       # one that does not answer any more is ended after so long
REST_S, REST_MOST_S = 0.5, 30.0      # before it is started again; doubled each time in a row
STEADY_S = 60.0                      # one that was warm for so long has not crashed in a row
FAILED_S = 60.0                      # a crash loop is left alone for so long
INT_S, TERM_S = 2.0, 5.0             # of its ladder
KEPT_BYTES = 1024 * 1024             # of what it says, until the supervisor is told that it is in the log

COLD, QUEUED, STARTING, WARM, DOUBTED, RESTING, STOPPING, FAILED = (
    "cold", "queued", "starting", "warm", "doubted", "resting", "stopping", "failed")


class Note(msgspec.Struct, frozen=True):
    """What a later start of the node must know of one that runs."""

    spec: ServerSpec
    port: int
    attempt: int
    kept: int = 0                    # up to here its journal is in the log


@dataclass(frozen=True)
class Means:
    """What all servers of a node are started with. `probe(url)` is a Deferred of (status, body)."""

    clock: Any
    spawner: Any
    environment: Callable[[], Mapping[str, str]]
    require: Callable[[Iterable[Program]], None]
    probe: Callable[[str], Deferred[tuple[int, bytes]]]
    free_port: Callable[[str], int]


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
        self.url = ""
        self.used_s = means.clock.seconds()
        self.yielding = False                 # it goes once nobody uses it: another one waits for its memory
        self.retired = False                  # and this one is not configured any more
        self.log = ServerLog(folder)
        self.pid = 0
        self._means = means
        self._clock = means.clock
        self._keeper = keeper
        self._folder = folder
        self._waiting: list[Waiting] = []
        self._users: set[Use] = set()
        self._program: Any = None
        self._attempt = 0
        self._port = 0
        self._kept = 0
        self._began_s = 0.0                   # starting or doubted since
        self._warm_s = 0.0                    # warm since
        self._pause_s = LOOK_S
        self._crashes = 0
        self._why = ""                        # it is being ended by us, for this reason
        self._taken_up = False
        self._error: IOPError | None = None
        self._timer: IDelayedCall | None = None
        self._probe: Deferred[Any] | None = None
        self._closed: Deferred[None] | None = None

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
            self._enter(DOUBTED)
            self._begin_looking()

    def _want(self) -> None:
        if self.state == COLD and self._closed is None:
            self._enter(QUEUED)
            self._keeper.wants_room(self)

    # --- starting

    def begin(self) -> None:
        """There is room for it."""
        self._why = ""
        self._taken_up = False
        self.log.begin()
        try:
            self._means.require([self.spec.program])
            self._spawn()
        except OSError as error:
            self._crashed(f"it could not be started: {error.strerror}")
        except IOPError as error:
            self._fail(error)
        else:
            self._enter(STARTING)
            self._begin_looking()

    def _spawn(self) -> None:
        """Raises OSError."""
        spec = self.spec
        self._port = spec.port or self._means.free_port(spec.host)
        self.url = spec.url(self._port)
        self._attempt, self._kept = self._keeper.next_attempt(spec), 0
        argv, env = spec.filled(self._port)
        environment = {**self._means.environment(), **env}
        work = os.path.join(self._folder, "work")
        for folder in (os.path.dirname(self._folder), self._folder, work):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        self._note()
        program = argv[0] if "/" in argv[0] else shutil.which(argv[0], path=environment.get("PATH", "")) or argv[0]
        log.info("starting the server {name} at {url}", name=spec.id, url=self.url)
        self._program = self._means.spawner.spawn(
            SpawnRequest(run_id=spawn_id(spec), attempt=self._attempt, argv=(program, *argv[1:]), cwd=spec.cwd or work,
                         env=environment, int_s=INT_S, term_s=TERM_S), Ears(self, self._attempt))

    def take_up(self, note: Note) -> None:
        """It runs since an earlier start of the node; or it did."""
        self._taken_up = True
        self._port, self._attempt, self._kept = note.port, note.attempt, note.kept
        self.url = self.spec.url(note.port)
        self._program = self._means.spawner.take_up(spawn_id(self.spec), note.attempt, Ears(self, note.attempt), note.kept)
        self._enter(STARTING)
        self._begin_looking()

    def _note(self) -> None:
        note = Note(self.spec, self._port, self._attempt, self._kept)
        write_private(note_file(self._folder), msgspec.json.encode(note))

    # --- its health

    def _begin_looking(self) -> None:
        self._began_s, self._pause_s = self._clock.seconds(), LOOK_S
        self._look()

    def _look(self) -> None:
        self._set_timer()
        self._probe = self._means.probe(self.url + self.spec.health_path)
        self._probe.addCallbacks(self._answered, self._no_answer, callbackArgs=(self._attempt,), errbackArgs=(self._attempt,))

    def _answered(self, reply: tuple[int, bytes], attempt: int) -> None:
        self._looked(attempt, reply[0] == 200)

    def _no_answer(self, failure: Failure, attempt: int) -> None:
        """Where nobody listens yet, there is none."""
        self._looked(attempt, False)

    def _looked(self, attempt: int, ready: bool) -> None:
        self._probe = None
        if attempt != self._attempt or self.state not in (STARTING, DOUBTED) or self._why:
            return
        if ready:
            self._ready()
            return
        limit_s = DOUBT_S if self.state == DOUBTED else self.spec.ready_s
        if self._clock.seconds() - self._began_s >= limit_s:
            self._end_it("it did not answer any more" if self.state == DOUBTED else
                         f"it was not ready within {limit_s:g} s (serve.ready_s)")
            return
        self._tell(self._waiting)
        self._set_timer(self._pause_s, self._look)
        self._pause_s = min(self._pause_s * 1.5, LOOK_MOST_S)

    def _end_it(self, why: str) -> None:
        """Its end tells the rest."""
        self._why = why
        self._program.kill()

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
            detail, progress = name, self.log.progress
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

    # --- the program

    def program_started(self, pid: int, attempt: int) -> None:
        if attempt == self._attempt:
            self.pid = pid

    def output_received(self, data: bytes, offset: int, attempt: int) -> None:
        self.log.write(data)
        if attempt == self._attempt and self._program is not None and offset - self._kept >= KEPT_BYTES:
            self._kept = offset
            try:
                self._note()
            except OSError:                      # then the journal keeps it
                return
            self._program.kept(offset)

    def program_ended(self, ending: ProgramEnding, attempt: int) -> None:
        self._means.spawner.discard(spawn_id(self.spec), attempt).addErrback(
            lambda failure: log.failure("what is kept of the server {name} cannot be removed", failure, name=self.spec.id))
        if attempt != self._attempt:
            return
        self._program, self.pid, self.url = None, 0, ""
        if self.state == STOPPING or (self._taken_up and self.idle):
            self._gone()
        else:
            self._crashed(self._why or how(ending))

    def _gone(self) -> None:
        """It has left; who came meanwhile has it started again."""
        self._set_timer()
        self.yielding = False
        self.log.close()
        self._enter(COLD)
        if self._closed is not None:
            self._closed.callback(None)
        elif self._waiting:
            self._want()

    def _crashed(self, why: str) -> None:
        words = self.log.last_words()
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
                      seconds=FAILED_S, file=self.log.path)
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
            self._enter(STOPPING)
            self._program.stop()
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
        self._closed = Deferred()
        if self._probe is not None:
            self._probe.cancel()
        if self._program is not None:
            self._program.pause()
        self.log.close()

    # --- small things

    def _enter(self, state: str) -> None:
        if state != self.state:
            self.state = state
            self._keeper.changed()

    def _set_timer(self, seconds: float = 0.0, call: Callable[[], None] | None = None) -> None:
        """There is one at most: the next look, the end of a rest, or being idle for long."""
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


@implementer(IProgramReceiver)
class Ears:
    """Hears one start of a server's program."""

    def __init__(self, server: Server, attempt: int) -> None:
        self._server = server
        self._attempt = attempt

    def program_started(self, pid: int) -> None:
        self._server.program_started(pid, self._attempt)

    def output_received(self, channel: int, data: bytes, offset: int) -> None:
        self._server.output_received(data, offset, self._attempt)

    def program_ended(self, ending: ProgramEnding) -> None:
        self._server.program_ended(ending, self._attempt)


def how(ending: ProgramEnding) -> str:
    """How its program ended, as a clause."""
    if ending.error:
        return f"it could not be started: {ending.error.rstrip('.')}"
    if ending.exit_code is not None:
        return f"it ended with exit code {ending.exit_code}"
    return f"it was ended by signal {ending.signal}" if ending.signal else "it was killed with its supervisor"


def spawn_id(spec: ServerSpec) -> str:
    """What its program is called among those of the node's runs."""
    return f"server-{spec.id}"


def note_file(folder: str) -> str:
    return os.path.join(folder, "server.json")
