"""Fakes around a NodeService: an adapter with runs driven by hand, a record in memory, an edge that keeps what it gets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from zope.interface import alsoProvides, implementer

from iop import events
from iop.config import PolicyConfig
from iop.errors import Cancelled, ConfigError, HistoryUnavailable, InvalidRequest, IOPError
from iop.interfaces import IAdapter, IAdapterFactory, IExecution, IHealth, ILinkHandler, IOutlives, IResumes, ITakesInput
from iop.node.commands import node_commands
from iop.node.offers import Offers
from iop.node.policy import Policy, PolicyFacts
from iop.node.segments import Segment, SegmentLog, records
from iop.node.service import NodeService
from iop.node.spool import Spool
from iop.node.tools import Tools
from iop.proto.link_pb2 import VERDICT_CONTINUE, RunVerdict, Verdicts
from iop.proto.node_pb2 import AdapterConfig, NodeConfigPayload, TargetConfig
from iop.proto.run_pb2 import Limits, Outcome, RunRequest
from iop.requirements import Program
from iop.runs import ExecutionSpec, new_run_id
from iop.servers import TargetHealth
from iop.store.record import OpenRun
from iop.testing.links import LinkPair

WORD = b"word"


@implementer(IExecution, ITakesInput)
class HandRun:
    """An execution that does what the test says."""

    stop_s = 20.0

    def __init__(self, spec: ExecutionSpec, sink: Any, stops: bool = True) -> None:
        self.spec, self.sink = spec, sink
        self.finished: Deferred = Deferred()
        self.paused = False
        self.stopped: IOPError | None = None
        self.input: list[tuple[bytes, bool]] = []
        self._stops = stops
        self.mark = b""                       # it was taken up behind this
        self.marks: list[bytes] = []          # kept

    def kept(self, mark: bytes) -> None:
        self.marks.append(mark)

    def begin(self) -> None:
        self.sink.emit([events.started(self.spec.adapter, self.spec.target)])

    def say(self, *texts: str, mark: bytes = b"") -> None:
        self.sink.emit([events.output(text) for text in texts], mark)

    def end(self, kind: str = "completed", **outcome: Any) -> None:
        if not self.finished.called:
            self.finished.callback((kind, Outcome(**outcome)))

    def stop(self, error: IOPError) -> None:
        self.stopped = error
        if self._stops:
            self.end("cancelled" if isinstance(error, Cancelled) else "failed", code=error.code)

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused = False

    def write(self, data: bytes, end: bool) -> None:
        if self.input and self.input[-1][1]:
            raise InvalidRequest("closed")
        self.input.append((data, end))


@implementer(IAdapter, IHealth, IResumes)
class HandAdapter:
    """Starts HandRuns."""

    def __init__(self, targets: dict[str, Any], tools: Any) -> None:
        self.targets, self.tools = targets, tools
        self.runs: list[HandRun] = []
        self.closed = 0
        self.health: dict[str, str] = {}
        self.doubtful = False
        self.stops = True
        self.outlive = False                  # its runs outlive the node
        self.fails: Exception | None = None

    def execute(self, spec: ExecutionSpec, sink: Any) -> HandRun:
        if self.fails is not None:
            raise self.fails
        run = HandRun(spec, sink, self.stops)
        if self.outlive:
            alsoProvides(run, IOutlives)
        self.runs.append(run)
        return run

    def resume(self, spec: ExecutionSpec, sink: Any, mark: bytes) -> HandRun:
        run = self.execute(spec, sink)
        run.mark = mark
        return run

    def close(self) -> Deferred[None]:
        self.closed += 1
        return succeed(None)

    def check(self) -> Deferred[dict[str, str]]:
        return succeed({name: TargetHealth(self.health.get(name, "")) for name in {**self.targets, **self.health}})


@implementer(IAdapterFactory)
class HandFactory:
    """`hand`: its settings are any mapping; {"bad": …} is a fault, {"argv": […]} needs a program."""

    name = "hand"
    default_concurrency = 4

    def __init__(self) -> None:
        self.built: list[HandAdapter] = []
        self.outlive = False
        self.refuses = ""

    def settings(self, target: TargetConfig) -> dict[str, Any]:
        settings = msgspec.json.decode(target.settings or b"{}")
        if "bad" in settings:
            raise ConfigError("bad is not known; allowed here: argv.")
        return settings

    def requirements(self, settings: dict[str, Any]) -> list[Program]:
        return [Program(tuple(settings["argv"]))] if "argv" in settings else []

    def build(self, targets: dict[str, Any], tools: Any) -> HandAdapter:
        if self.refuses:
            raise ConfigError(self.refuses)
        self.built.append(HandAdapter(targets, tools))
        self.built[-1].outlive = self.outlive
        return self.built[-1]


class MemoryRecord:
    """NodeRecord's API in memory; `hold` keeps accepts waiting."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], list[Any]] = {}
        self.unended: dict[tuple[str, int], OpenRun] = {}
        self.waiting: list[tuple[Deferred, bool]] = []
        self.hold = False
        self.broken = False
        self.programs: list[tuple] = []

    def open(self) -> Deferred:
        return succeed(None)

    close = open

    def accept(self, run_id: str, attempt: int, adapter: str, target: str, request: bytes, target_config: bytes,
               limits: bytes) -> Deferred:
        if self.broken:
            return fail(HistoryUnavailable())
        fresh = (run_id, attempt) not in self.rows
        self.rows.setdefault((run_id, attempt), [])
        self.unended.setdefault((run_id, attempt), OpenRun(
            run_id=run_id, attempt=attempt, adapter=adapter, target=target, accepted_us=events.now_us(), request=request,
            target_config=target_config, limits=limits))
        if not self.hold:
            return succeed(fresh)
        waiting: Deferred = Deferred()
        self.waiting.append((waiting, fresh))
        return waiting

    def commit(self) -> None:
        waiting, self.waiting = self.waiting, []
        for deferred, fresh in waiting:
            deferred.callback(fresh)

    def program_started(self, *values: Any) -> Deferred:
        self.programs.append(values)
        return succeed(None)

    def end(self, run_id: str, attempt: int, kind: str, outcome: bytes) -> Deferred:
        self.rows[run_id, attempt].append(kind)
        self.unended.pop((run_id, attempt), None)
        return succeed(None)

    def open_runs(self) -> Deferred:
        return succeed(list(self.unended.values()))

    def recent(self, limit: int) -> Deferred:
        return succeed([])


class HandSpawner:
    """What an earlier start left alive, as the test says."""

    def __init__(self, *alive: tuple[str, int]) -> None:
        self.alive = set(alive)
        self.discarded: list[tuple[str, int]] = []

    def survivors(self) -> Deferred:
        return succeed(self.alive)

    def discard(self, run_id: str, attempt: int) -> Deferred:
        self.discarded.append((run_id, attempt))
        return succeed(None)

    def forget(self, run_id: str) -> Deferred:
        return succeed(None)


class MemoryLog(SegmentLog):
    """A SegmentLog whose files are bytes; `trouble` is the error number of every write."""

    def __init__(self, segment_bytes: int = 1 << 20) -> None:
        super().__init__("", segment_bytes)
        self.files: dict[str, bytearray] = {}
        self.aside: dict[str, bytes] = {}
        self.trouble = 0

    def reopened(self) -> MemoryLog:
        """As another start of the node finds it."""
        other = MemoryLog(self._segment_bytes)
        other.files = self.files
        return other

    def read(self) -> Iterator[tuple[Segment, bytes | None]]:
        for path, data in sorted(self.files.items()):
            self._number = int(path)
            segment = Segment(path, WORD, len(data))
            self.size_bytes += len(data)
            yield from ((segment, payload) for payload in records(bytes(data), WORD))

    def _removed(self) -> bool:
        return False

    def _begin(self) -> Segment:
        self._number += 1
        self.current = Segment(f"{self._number:09}", WORD)
        self.files[self.current.path] = bytearray()
        return self.current

    def _write(self, data: bytes, at: int) -> None:
        if self.trouble:
            raise OSError(self.trouble, os.strerror(self.trouble))
        self.files[self.current.path][at:] = data

    def _cut(self, size: int) -> None:
        del self.files[self.current.path][size:]

    def remove(self, segment: Segment) -> None:
        del self.files[segment.path]
        self._leave(segment)

    def set_aside(self, segment: Segment) -> str:
        self.aside[segment.path] = bytes(self.files.pop(segment.path))
        self._leave(segment)
        return segment.path


@implementer(ILinkHandler)
class Edge:
    """Keeps what the node sends; answers a report with CONTINUE for all, unless `verdicts` says otherwise."""

    def __init__(self, config: NodeConfigPayload | None = None) -> None:
        self.got: list[tuple[str, Any]] = []
        self.link: Any = None
        self.config = config
        self.verdict = VERDICT_CONTINUE
        self.committed = 0
        self.answers = True
        self._reports: list[Any] = []

    def link_up(self, link: Any) -> None:
        self.link = link
        self._reports = []

    def frame_received(self, link: Any, kind: str, message: Any, packed: bytes) -> None:
        self.got.append((kind, message))
        if kind == "runs_report":
            self._reports += message.runs
            if message.last and self.answers:
                self.answer()

    def answer(self) -> None:
        self.link.send("verdicts", Verdicts(last=True, runs=[
            RunVerdict(run_id=run.run_id, attempt=run.attempt, committed_seq=self.committed, verdict=self.verdict)
            for run in self._reports]))
        if self.config is not None:
            self.link.send("node_config_payload", self.config)

    def read_finished(self, link: Any) -> None:
        pass

    def link_down(self, link: Any, reason: IOPError) -> None:
        self.link = None

    def of(self, kind: str) -> list[Any]:
        return [message for got, message in self.got if got == kind]

    def seen(self, run_id: str) -> list[str]:
        """``seq:kind`` of every event of a run, in the order of arrival."""
        return [f"{batch.first_seq + n}:{event.output or event.WhichOneof('kind')}"
                for batch in self.of("event_batch") if batch.run_id == run_id for n, event in enumerate(batch.events)]

    def ending(self, run_id: str) -> tuple[str, Outcome]:
        found = [events.ending_of(batch) for batch in self.of("event_batch") if batch.run_id == run_id]
        endings = [ending for ending in found if ending is not None]
        assert len(endings) == 1, endings
        return endings[0]


def target(name: str, **settings: Any) -> TargetConfig:
    return TargetConfig(name=name, settings=msgspec.json.encode(settings))


def config(*targets: TargetConfig, concurrency: int = 0, revision: int = 1) -> NodeConfigPayload:
    part = AdapterConfig(adapter="hand", concurrency=concurrency, targets=targets or [target("t")])
    return NodeConfigPayload(revision=revision, whole=True, adapters=[part], labels={"zone": "a"})


def make_tools(clock: Any, mode: str = "guided", folder: str = "") -> Tools:
    policy = Policy(PolicyConfig(mode=mode, trust_edge_commands=True), PolicyFacts(0, 0))
    return Tools(clock, None, policy, folder, {"PATH": "/usr/bin", "SECRET": "x"})


class House:
    """A node and its edge over a memory wire."""

    def __init__(self, payload: NodeConfigPayload | None = None, *, mode: str = "guided",
                 own: list[AdapterConfig] | None = None, connect: bool = True, log: Any = None, record: Any = None,
                 spawner: Any = None, outlive: bool = False) -> None:
        self.clock = Clock()
        self.factory = HandFactory()
        self.factory.outlive = outlive
        self.record = record or MemoryRecord()
        self.log = log or MemoryLog()
        self.edge = Edge(payload or config())
        self.tools = make_tools(self.clock, mode)
        self.tools.spawner = spawner
        self.offers = Offers(own or [], self.tools, lambda: [self.factory])
        self.node = NodeService("n1", offers=self.offers, tools=self.tools, record=self.record, clock=self.clock,
                                marker={"IOP_NODE": "n1"}, labels={"own": "yes"},
                                spool=Spool(self.log, self.clock), commands=node_commands(lambda: None))
        self.node.startService()
        self.pair: Any = None
        if connect:
            self.connect()

    def again(self, *alive: tuple[str, int], connect: bool = True, committed: int = 0, **more: Any) -> House:
        """Another start of the node, after a death of this one; `alive` are the programs that still run."""
        other = House(self.edge.config, log=self.log.reopened(), record=self.record, spawner=HandSpawner(*alive),
                      outlive=True, connect=False, **more)
        other.edge.committed = committed
        if connect:
            other.connect()
        return other

    def connect(self, **more: Any) -> None:
        self.pair = LinkPair(self.edge, self.node, self.clock, **more)

    @property
    def adapter(self) -> HandAdapter:
        return self.factory.built[-1]

    def tell(self, kind: str, message: Any) -> None:
        self.edge.link.send(kind, message)
        self.pair.pump()

    def pass_time(self, seconds: float) -> None:
        """In steps of a second, with a link that stays alive."""
        for _ in range(int(seconds)):
            self.clock.advance(1)
            self.pair.pump()

    def request(self, **fields: Any) -> RunRequest:
        return RunRequest(**{"run_id": new_run_id(), "attempt": 1, "adapter": "hand", "target": "t", "prompt": "hi"} | fields)

    def begin(self, **fields: Any) -> HandRun:
        """A run that has begun."""
        self.tell("run_request", self.request(**fields))
        run = self.adapter.runs[-1]
        run.begin()
        self.pair.pump()
        return run


__all__ = ["Edge", "HandAdapter", "HandFactory", "House", "Limits", "MemoryRecord", "config", "make_tools", "target"]
