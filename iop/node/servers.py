"""The model servers of one node: one at most for each spec, as many at once as the memory budget has room for.

Who finds no room waits in line: the least recently used idle servers are unloaded for it, and after TURN_S those in use take
no more runs until it has had its turn.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.defer import Deferred, fail, gatherResults
from twisted.logger import Logger
from zope.interface import implementer

from iop.errors import AdapterError, Draining
from iop.interfaces import IServers
from iop.node.alarm import Alarm
from iop.node.box import Key
from iop.node.room import Held, must_yield, room_for
from iop.node.server import Server
from iop.node.server_note import PREFIX, read_note, spawn_id
from iop.node.server_program import Means
from iop.node.server_state import FAILED, QUEUED, STOPPING, as_told
from iop.node.server_use import Use
from iop.servers import COLD, STARTING, WARM, ServerSpec, Told

log = Logger()

_CHANGED = "its `serve` says something else now"
TURN_S = 30.0             # one that waits longer for room gets it from those in use


def is_server(key: Key) -> bool:
    """Whether a program that a node has is a server, and no run."""
    return key[0].startswith(PREFIX)


@implementer(IServers)
class Servers:
    """`folder` holds a folder for each. `told()` is called when the state of any has changed."""

    def __init__(self, means: Means, folder: str, budget_bytes: int = 0, told: Callable[[], None] = lambda: None) -> None:
        self.told = told
        self._means = means
        self._folder = folder
        self._budget = budget_bytes
        self._servers: dict[str, Server] = {}
        self._replaced: list[Server] = []         # of the same name as another one now; they go
        self._attempts: dict[str, int] = {}
        self._line: list[tuple[Server, float]] = []     # who waits for room, and since when
        self._turn = Alarm(means.clock)
        self._looking = False                     # for room
        self._changed = False                     # meanwhile
        self._stopping = False

    # --- IServers

    def use(self, spec: ServerSpec, told: Told) -> Deferred[Use]:
        if self._stopping:
            return fail(Draining("This node is stopping."))
        too_large = self._too_large(spec)
        return fail(AdapterError(too_large)) if too_large else self._server(spec).use(told)

    def state(self, spec: ServerSpec) -> str:
        server = self._known(spec)
        if server is None:
            return self._too_large(spec) or COLD
        return server.why_not if server.state == FAILED else as_told(server.state)

    def url(self, spec: ServerSpec) -> str:
        server = self._known(spec)
        return server.program.url if server is not None and server.state == WARM else ""

    # --- what the operator and the configuration say

    def load(self, spec: ServerSpec, told: Told) -> Deferred[None]:
        """Have it ready, though no run needs it."""
        server = self._known(spec)
        if server is not None:
            server.forgive()
        return self.use(spec, told).addCallback(lambda use: use.release())

    def unload(self, spec: ServerSpec) -> None:
        """Begin to end it; one that does not run stays so. Raises Conflict while somebody needs it."""
        server = self._known(spec)
        if server is not None:
            server.unload()

    def describe(self, spec: ServerSpec) -> dict[str, Any]:
        """How it is, for people."""
        server = self._known(spec)
        state = self.state(spec)
        told: dict[str, Any] = {"server": spec.id, "state": state, "memory_bytes": spec.memory_bytes}
        if server is None:
            return told | {"pid": 0, "url": "", "users": 0, "waiting": 0, "progress": 0.0}
        program = server.program
        return told | {"pid": program.pid, "url": program.url, "users": len(server.uses), "waiting": len(server.waits),
                       "progress": program.log.progress if state == STARTING else 0.0}

    def configured(self, specs: Iterable[ServerSpec]) -> None:
        """These are all there are: the others go as soon as nobody uses them."""
        wanted = {spec.id: spec for spec in specs}
        for name, server in list(self._servers.items()):
            if wanted.get(name) == server.spec:
                server.retired = False
            elif not server.retired:
                server.retire(_CHANGED if name in wanted else "no target is on it any more")

    # --- starting and stopping the node

    def take_up(self, keys: Iterable[Key]) -> set[Key]:
        """Go on with what an earlier start of the node left; which of them those are. The others are to be ended."""
        going_on: set[Key] = set()
        for run_id, attempt in keys:
            name = run_id.removeprefix(PREFIX)
            self._attempts[name] = max(self._attempts.get(name, 0), attempt)
            note = read_note(os.path.join(self._folder, name))
            if note is not None and note.attempt == attempt and spawn_id(note.spec) == run_id:
                log.info("the server {name} of an earlier start of this node is taken up", name=name)
                self._server(note.spec).take_up(note)
                going_on.add((run_id, attempt))
        return going_on

    def stop(self) -> Deferred[Any]:
        """End all of them; fires when nothing of them is left."""
        self._stopping = True
        self._line.clear()
        return gatherResults([server.close() for server in self._all()])

    def let_go(self) -> None:
        """Leave them to another image of this process."""
        self._stopping = True
        for server in self._all():
            server.let_go()

    # --- Keeper

    def wants_room(self, server: Server) -> None:
        self._line.append((server, self._means.clock.seconds()))
        self._find_room()

    def changed(self) -> None:
        self._replaced = [server for server in self._replaced if server.holds_memory]
        if not self._stopping:
            self._servers = {name: server for name, server in self._servers.items()
                             if not (server.retired and server.state == COLD)}
            self._find_room()
            self.told()

    def freed(self) -> None:
        if self._line and not self._stopping:
            self._find_room()

    def next_attempt(self, spec: ServerSpec) -> int:
        self._attempts[spec.id] = self._attempts.get(spec.id, 0) + 1
        return self._attempts[spec.id]

    # --- room

    def _find_room(self) -> None:
        """What comes of it may make more room, or need some: again, until nothing changes any more."""
        self._changed = True
        if self._looking:
            return
        self._looking = True
        try:
            while self._changed:
                self._changed = False
                self._serve_line()
        finally:
            self._looking = False

    def _serve_line(self) -> None:
        """Begin those that have waited longest, as far as there is room; make some for the first that finds none."""
        self._line = [(server, since_s) for server, since_s in self._line if server.state == QUEUED]
        for server, since_s in list(self._line):
            if any(other.spec.id == server.spec.id for other in self._replaced):
                server.waits.tell(f"{server.spec.id} waits for the end of the one that was configured before")
            elif self._has_room(server, since_s):
                server.begin()
            else:
                return

    def _has_room(self, server: Server, since_s: float) -> bool:
        needed, held = server.spec.memory_bytes, self._held()
        if not self._budget or not needed or needed + sum(one.bytes for one in held) <= self._budget:
            return True
        going = room_for(needed, self._budget, held)
        if going is None:
            in_use = ", ".join(one.name for one in held if one.bytes and not one.idle)
            server.waits.tell(f"{server.spec.id} waits for memory, which is taken by {in_use}")
            left_s = since_s + TURN_S - self._means.clock.seconds()
            if left_s > 0:
                self._look_again(left_s)
            else:
                for name in must_yield(needed, self._budget, held):
                    self._servers[name].let_others()
            return False
        for name in going:
            log.info("the server {name} is unloaded to make room for {other}", name=name, other=server.spec.id)
            self._servers[name].let_others()
        server.waits.tell(f"{server.spec.id} waits until there is memory for it")
        return False

    def _held(self) -> list[Held]:
        return [Held(server.spec.id, server.spec.memory_bytes, server.idle, server.uses.last_s,
                     leaving=server.state == STOPPING or server.yielding)
                for server in self._all() if server.holds_memory]

    def _look_again(self, seconds: float) -> None:
        if not self._turn.is_set:
            self._turn.set(seconds, self._find_room)

    # --- small things

    def _too_large(self, spec: ServerSpec) -> str:
        if not self._budget or spec.memory_bytes <= self._budget:
            return ""
        return (f"The server {spec.id} needs {spec.memory_bytes} bytes of memory, and servers.memory_bytes of this node is "
                f"{self._budget}; raise the one or lower the other.")

    def _all(self) -> list[Server]:
        return [*self._servers.values(), *self._replaced]

    def _known(self, spec: ServerSpec) -> Server | None:
        server = self._servers.get(spec.id)
        return server if server is not None and server.spec == spec else None

    def _server(self, spec: ServerSpec) -> Server:
        """The one for this spec; one of the same name that was configured otherwise goes first."""
        server = self._servers.get(spec.id)
        if server is not None and server.spec == spec:
            return server
        if server is not None:
            if server.holds_memory:
                self._replaced.append(server)
            server.retire(_CHANGED)
        server = self._servers[spec.id] = Server(spec, self._means, self, os.path.join(self._folder, spec.id))
        return server


def free_port(host: str, wanted: int) -> int:
    """The one that is `wanted`, or any (0), that nobody listens on now. Raises OSError: else whoever listens there would
    be taken for the server, and be sent its requests.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        if wanted:                           # what is left of an earlier start's connections is in nobody's way
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, wanted))
        except OSError as error:
            sentence = f"its port {wanted} is taken by another program"
            raise OSError(error.errno, sentence if error.errno == errno.EADDRINUSE else error.strerror) from None
        return int(probe.getsockname()[1])
