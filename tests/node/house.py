"""All servers of a node, on a clock and with programs driven by hand."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from zope.interface import implementer

from iop.errors import IOPError, UpstreamError
from iop.interfaces import IProgram, ISpawner
from iop.node.server_program import Means
from iop.node.servers import Servers
from iop.servers import ServerSpec, checked_spec
from iop.spawning import ProgramEnding, SpawnRequest

READY, LOADING = 200, 503


@implementer(IProgram)
class HandProgram:
    def __init__(self, request: SpawnRequest | None, receiver: Any, offset: int = 0) -> None:
        self.request, self.receiver, self.offset = request, receiver, offset
        self.pid = 4711
        self.asked: list[str] = []
        self.places: list[int] = []
        self.over = False

    def stop(self) -> None:
        self.asked.append("stop")

    def kill(self) -> None:
        self.asked.append("kill")

    def pause(self) -> None:
        self.asked.append("pause")

    def kept(self, offset: int) -> None:
        self.places.append(offset)

    def resume(self) -> None: ...

    def write(self, data: bytes) -> None: ...

    def close_input(self) -> None: ...

    def say(self, text: str, offset: int = 0) -> None:
        self.receiver.output_received(2, text.encode(), offset)

    def end(self, **how: Any) -> None:
        self.over = True
        self.receiver.program_ended(ProgramEnding(**how))


@implementer(ISpawner)
class HandSpawner:
    def __init__(self) -> None:
        self.programs: list[HandProgram] = []
        self.discarded: list[tuple[str, int]] = []

    def spawn(self, program: SpawnRequest, receiver: Any) -> HandProgram:
        assert all(earlier.over for earlier in self.programs if earlier.request.run_id == program.run_id), "two for one"
        self.programs.append(HandProgram(program, receiver))
        return self.programs[-1]

    def take_up(self, run_id: str, attempt: int, receiver: Any, offset: int) -> HandProgram:
        request = SpawnRequest(run_id=run_id, attempt=attempt, argv=(), cwd="", env={})
        self.programs.append(HandProgram(request, receiver, offset))
        return self.programs[-1]

    def survivors(self) -> Deferred: return succeed(set())

    def discard(self, run_id: str, attempt: int) -> Deferred:
        self.discarded.append((run_id, attempt))
        return succeed(None)

    def forget(self, run_id: str) -> Deferred: return succeed(None)

    def kill_all(self) -> Deferred: return succeed(None)


class House:
    """All servers of a node; `health` is what each port answers."""

    def __init__(self, folder: Path, budget: int = 0) -> None:
        self.clock = Clock()
        self.spawner = HandSpawner()
        self.health: dict[int, int] = {}
        self.ports = iter(range(1001, 2000))
        self.denied: IOPError | None = None
        self.told = 0
        self.folder = folder
        self.servers = Servers(Means(self.clock, self.spawner, lambda: {"PATH": "/usr/bin"}, self.require, self.probe,
                                     self.free_port), str(folder), budget, self.count)

    def free_port(self, host: str, wanted: int) -> int:
        if wanted in self.health:                # somebody answers there
            raise OSError(errno.EADDRINUSE, f"its port {wanted} is taken by another program")
        return wanted or next(self.ports)

    def count(self) -> None:
        self.told += 1

    def require(self, programs: Any) -> None:
        if self.denied is not None:
            raise self.denied

    def probe(self, url: str) -> Deferred:
        port = int(url.split(":")[2].split("/")[0])
        return succeed((self.health[port], b"")) if port in self.health else fail(UpstreamError("refused"))

    def use(self, spec: ServerSpec) -> Asked:
        asked = Asked()
        asked.deferred = self.servers.use(spec, lambda *said: asked.said.append(said))
        asked.deferred.addCallbacks(asked.served.append, asked.failed)
        return asked

    def ready(self, port: int = 0) -> None:
        """The latest one (or that at `port`) answers from now on."""
        self.health[port or 1000 + len(self.spawner.programs)] = READY
        self.pass_(1)

    def pass_(self, seconds: float) -> None:
        self.clock.pump([0.25] * int(seconds * 4))

    @property
    def last(self) -> HandProgram:
        return self.spawner.programs[-1]


class Asked:
    """A use that somebody waits for."""

    def __init__(self) -> None:
        self.deferred: Deferred = Deferred()
        self.said: list[tuple[str, float]] = []
        self.served: list[Any] = []
        self.error: BaseException | None = None

    def failed(self, failure: Any) -> None:
        self.error = failure.value

    @property
    def use(self) -> Any:
        return self.served[0]


def spec(name: str = "a", **more: Any) -> ServerSpec:
    return checked_spec(ServerSpec(argv=("/bin/serve", name, "--port", "{port}"), name=name, **more), "/health")


def warm(house: House, wanted: ServerSpec) -> Asked:
    """A run that uses it."""
    asked = house.use(wanted)
    house.ready()
    assert asked.served
    return asked
