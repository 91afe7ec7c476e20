"""What the tests of adapters share: a sink, tools, a spawner without processes, and waiting for a condition."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import deferLater
from zope.interface import implementer

from iop.errors import PolicyDenied
from iop.events import ENDING_KINDS
from iop.interfaces import IAdapterTools, IExecution, IProgram, IRunSink, ISpawner
from iop.proto import node_pb2, run_pb2
from iop.runs import ExecutionSpec
from iop.spawning import ProgramEnding, SpawnRequest

RUN_ID = "0" * 31 + "1"


async def until(condition: Callable[[], Any], within_s: float = 5.0) -> Any:
    """Wait for a condition, with a deadline."""
    deadline = reactor.seconds() + within_s
    while True:
        found = condition()
        if found:
            return found
        if reactor.seconds() > deadline:
            raise AssertionError(f"not within {within_s} s")
        await deferLater(reactor, 0.002)


@implementer(IRunSink)
class Sink:
    """Keeps what is emitted; may pause its execution at the n-th event."""

    def __init__(self) -> None:
        self.batches: list[list[run_pb2.RuntimeEvent]] = []
        self.marks: list[bytes] = []
        self.execution: Any = None
        self.ended = False
        self.pause_at = 0

    def emit(self, events: list[run_pb2.RuntimeEvent], mark: bytes = b"") -> None:
        assert events and not self.ended, "nothing may be emitted after the end"
        assert not {event.WhichOneof("kind") for event in events} & ENDING_KINDS, "the run makes the terminal event"
        self.batches.append(list(events))
        self.marks.append(mark)
        if self.pause_at and len(self.events) >= self.pause_at:
            self.pause_at = 0
            self.execution.pauseProducing()

    @property
    def events(self) -> list[run_pb2.RuntimeEvent]:
        return [event for batch in self.batches for event in batch]

    @property
    def kinds(self) -> list[str]:
        return [event.WhichOneof("kind") for event in self.events]

    def text(self, channel: int | None = None) -> str:
        return "".join(event.output for event in self.events
                       if event.WhichOneof("kind") == "output" and channel in (None, event.channel))


@implementer(IAdapterTools)
class Tools:
    """A node's tools; `denied` makes the policy say no."""

    def __init__(self, clock: Any, spawner: Any = None) -> None:
        self.clock = clock
        self.reactor = reactor
        self.spawner = spawner
        self.servers: Any = None         # IServers, where a test is about servers of the node's own
        self.denied = False
        self.required: list[Any] = []

    def workdir(self, run_id: str) -> str:
        return f"/var/lib/iop/runs/{run_id}"

    def environment(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin", "HOME": "/home/iop", "LANG": "C.UTF-8"}

    def require(self, requirements: list[Any]) -> None:
        self.required += requirements
        if self.denied:
            raise PolicyDenied


@implementer(IProgram)
class FakeProgram:
    """A program that does what the test says."""

    def __init__(self, request: SpawnRequest | None, receiver: Any) -> None:
        self.request = request
        self.receiver = receiver
        self.pid = 4711
        self.calls: list[Any] = []

    def write(self, data: bytes) -> None:
        self.calls.append(data)

    def close_input(self) -> None:
        self.calls.append("close_input")

    def stop(self) -> None:
        self.calls.append("stop")

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")

    def kept(self, offset: int) -> None:
        self.calls.append(("kept", offset))

    def ends(self, **ending: Any) -> None:
        self.receiver.program_ended(ProgramEnding(**ending))


@implementer(ISpawner)
class FakeSpawner:
    """Keeps the programs."""

    def __init__(self) -> None:
        self.programs: list[FakeProgram] = []
        self.taken_up: list[tuple[str, int, int]] = []
        self.discarded: list[tuple[str, int]] = []

    def spawn(self, program: SpawnRequest, receiver: Any) -> FakeProgram:
        self.programs.append(FakeProgram(program, receiver))
        return self.programs[-1]

    def take_up(self, run_id: str, attempt: int, receiver: Any, offset: int) -> FakeProgram:
        self.taken_up.append((run_id, attempt, offset))
        self.programs.append(FakeProgram(None, receiver))
        return self.programs[-1]

    def survivors(self) -> Deferred[set[tuple[str, int]]]:
        return succeed(set())

    def discard(self, run_id: str, attempt: int) -> Deferred[None]:
        self.discarded.append((run_id, attempt))
        return succeed(None)

    def forget(self, run_id: str) -> Deferred[None]:
        return succeed(None)

    def kill_all(self) -> Deferred[None]:
        return succeed(None)


def target(name: str = "t", **settings: Any) -> node_pb2.TargetConfig:
    return node_pb2.TargetConfig(name=name, settings=json.dumps(settings).encode())


class Started:
    """An execution under test, with its sink and what it ended with."""

    def __init__(self, factory: Any, tools: Any, config: node_pb2.TargetConfig, resume: bytes | None = None,
                 **request: Any) -> None:
        settings = factory.settings(config)
        self.adapter = factory.build({config.name: settings}, tools)
        self.sink = Sink()
        message = run_pb2.RunRequest(run_id=RUN_ID, attempt=1, adapter=factory.name, target=config.name,
                                     **(request or {"prompt": "say something"}))
        spec = ExecutionSpec(run_id=RUN_ID, attempt=1, adapter=factory.name, target=config.name, settings=settings,
                             request=message, limits=run_pb2.Limits(), marker={"IOP_MARK": "x"})
        self.endings: list[tuple[str, run_pb2.Outcome]] = []
        self.execution = self.sink.execution = (self.adapter.execute(spec, self.sink) if resume is None
                                                else self.adapter.resume(spec, self.sink, resume))
        assert IExecution.providedBy(self.execution)
        self.execution.finished.addCallback(self._finished)

    def _finished(self, ending: tuple[str, run_pb2.Outcome]) -> None:
        self.sink.ended = True
        self.endings.append(ending)

    @property
    def ending(self) -> tuple[str, run_pb2.Outcome] | None:
        return self.endings[-1] if self.endings else None

    async def ended(self, within_s: float = 5.0) -> tuple[str, run_pb2.Outcome]:
        return await until(lambda: self.ending, within_s)

    def close(self) -> Deferred[Any]:
        return self.adapter.close()
