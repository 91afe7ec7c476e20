"""An edge on a clock, a history in memory, and nodes over memory wires that do what a test says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.task import Clock
from zope.interface import implementer

from iop import config, yamlfile
from iop.config import EdgeConfig, EdgeIdentity, Listen, NodeEntry, QueueConfig
from iop.edge.recorder import PACE_S
from iop.edge.service import EdgeService
from iop.events import ending, output, started
from iop.interfaces import ILinkHandler
from iop.keys import KeyRing, make_key
from iop.link.peers import Peers
from iop.proto.link_pb2 import RunReport, RunsReport
from iop.proto.node_pb2 import AdapterConfig, AdapterState, ConfigApplied, NodeStatus, TargetConfig, TargetState
from iop.proto.run_pb2 import EventBatch, Outcome, RunAccepted, RunRequest, RuntimeEvent, Source
from iop.testing.history import FakeHistory
from iop.testing.links import LinkPair
from tests.edge.management import World

PERSON = Source(face="http", principal="anna", request_id="r1")


def result_of(deferred: Any) -> Any:
    """What a Deferred has fired with; an error is raised."""
    found: list[Any] = []
    deferred.addBoth(found.append)
    assert found, "the Deferred has not fired"
    if hasattr(found[0], "raiseException"):
        found[0].raiseException()
    return found[0]


def prompt(target: str = "echo", adapter: str = "mock", text: str = "hello", **fields: Any) -> RunRequest:
    return RunRequest(adapter=adapter, target=target, prompt=text, **fields)


def status(*targets: str, adapter: str = "mock", concurrency: int = 2, target_concurrency: int = 0,
           **fields: Any) -> NodeStatus:
    return NodeStatus(version="test", policy_mode="guided", adapters=[AdapterState(
        adapter=adapter, concurrency=concurrency, targets=[
            TargetState(adapter=adapter, target=name, aliases=[name + "-alias"], concurrency=target_concurrency, ready=True)
            for name in targets or ("echo",)])], **fields)


def entry(node_id: str = "n1", *targets: str, adapter: str = "mock", **labels: str) -> NodeEntry:
    return NodeEntry(id=node_id, labels=labels, adapters=[AdapterConfig(
        adapter=adapter, targets=[TargetConfig(name=name) for name in targets or ("echo",)])])


def edge_config(*nodes: NodeEntry, queue: QueueConfig | None = None, **identity: Any) -> EdgeConfig:
    return EdgeConfig(
        file="edge.yaml", edge=EdgeIdentity(**identity), listen=Listen(), history="", keys="keys.yaml",
        queue=queue or QueueConfig(), limits=config.LimitsConfig(), nodes=list(nodes),
        document=yamlfile.Document("edge.yaml", {}, {}))


@implementer(ILinkHandler)
class FakeNode:
    """The dialing side. Remembers what it is sent; speaks when the test says."""

    def __init__(self, edge: FakeEdge, node_id: str, reports: list[RunReport], instance: str = "1") -> None:
        self.node_id = node_id
        self.got: list[tuple[str, Any]] = []
        self.down: Any = None
        self._reports = reports
        self._clock = edge.clock
        self.pair = LinkPair(edge.handler_for, self, edge.clock, peer_id=node_id, instance=instance,
                             peers=edge.peers)

    def link_up(self, link: Any) -> None:
        self.link = link
        link.send("runs_report", RunsReport(runs=self._reports, last=True))

    def frame_received(self, link: Any, kind: str, message: Any, packed: bytes) -> None:
        self.got.append((kind, message))

    def read_finished(self, link: Any) -> None:
        pass

    def link_down(self, link: Any, reason: Any) -> None:
        self.down = reason

    def send(self, kind: str, message: Any) -> None:
        self.link.send(kind, message)
        self.pair.pump()

    def all(self, kind: str) -> list[Any]:
        self.pair.pump()
        return [message for name, message in self.got if name == kind]

    def last(self, kind: str) -> Any:
        found = self.all(kind)
        assert found, f"no {kind} came; there came {[name for name, _ in self.got]}"
        return found[-1]

    def ready(self, told: NodeStatus | None = None) -> FakeNode:
        """Apply the configuration and tell its status."""
        self.pair.pump()
        self.send("config_applied", ConfigApplied(revision=self.last("node_config_payload").revision))
        self.send("node_status", told or status())
        return self

    def accept(self) -> RunRequest:
        """Accept the last RunRequest."""
        request = self.last("run_request")
        self.send("run_accepted", RunAccepted(run_id=request.run_id, attempt=request.attempt))
        return request

    def emit(self, request: RunRequest, first_seq: int, *events: RuntimeEvent) -> None:
        """A batch, and then so long a quiet that the next one is not held back for it by history."""
        self.send("event_batch", EventBatch(run_id=request.run_id, attempt=request.attempt, first_seq=first_seq,
                                            events=events))
        self._clock.advance(PACE_S)
        self.pair.pump()

    def play(self, request: RunRequest, *texts: str) -> None:
        """A whole run: started, the texts, completed; a batch for each."""
        events = [started("mock", request.target), *[output(text) for text in texts],
                  ending("completed", Outcome(code="ok"))]
        for number, event in enumerate(events, 1):
            self.emit(request, number, event)


class FakeEdge:
    """The real EdgeService, with all around it in memory."""

    def __init__(self, *nodes: NodeEntry, history: FakeHistory | None = None, keyring: KeyRing | None = None,
                 **fields: Any) -> None:
        self.clock = Clock()
        self.history = history or FakeHistory()
        self.peers = Peers(self.clock)
        self.tokens: dict[str, str] = {}
        self.keys: list[Any] = []
        self.service = EdgeService(edge_config(*nodes, **fields), self.history, self.clock, keyring or KeyRing([]))
        result_of(self.service.start())

    def handler_for(self, hello: Any) -> Any:
        if hello.peer_id not in self.tokens:
            key, self.tokens[hello.peer_id] = make_key("node", hello.peer_id)
            self.keys.append(key)
            self.service.keyring = KeyRing(self.keys)
        hello.token = self.tokens[hello.peer_id]
        return result_of(self.service.greeter.greet(hello, "memory"))

    def node(self, node_id: str = "n1", reports: list[RunReport] | None = None, *, ready: bool = True,
             told: NodeStatus | None = None, instance: str = "1") -> FakeNode:
        node = FakeNode(self, node_id, reports or [], instance)
        return node.ready(told) if ready else node

    def submit(self, request: RunRequest | None = None, key: str | None = None) -> Any:
        return result_of(self.service.submit(request or prompt(), PERSON, key))

    def run(self, run_id: str) -> Any:
        return result_of(self.service.run(run_id))

    def cancel(self, run_id: str) -> Any:
        return result_of(self.service.cancel(run_id, PERSON, "enough"))

    def kinds(self) -> list[str]:
        return [event.kind for event in self.history.kept.events]

    def restarted(self, keyring: KeyRing | None = None) -> FakeEdge:
        """Another process on the same history; this one is gone."""
        self.service.stop()
        return FakeEdge(*self.service._config.nodes, history=FakeHistory(kept=self.history.kept), keyring=keyring)


def report(request: RunRequest, last: int, *, first: int = 1, open_: bool = True) -> RunReport:
    return RunReport(run_id=request.run_id, attempt=request.attempt, first_unacked=first, last_spooled=last, open=open_)


def running(edge: FakeEdge, node: FakeNode, *events: str, **fields: Any) -> RunRequest:
    """A run that is at work, with some output."""
    edge.submit(prompt(**fields))
    request = node.accept()
    node.emit(request, 1, started("mock", "echo"))
    for number, text in enumerate(events, 2):
        node.emit(request, number, output(text))
    return request


def verdicts(node: FakeNode) -> dict[str, tuple[int, int]]:
    return {word.run_id: (word.verdict, word.committed_seq) for page in node.all("verdicts") for word in page.runs}


def texts(entries: list[Any]) -> list[str]:
    return [event.output for one in entries for event in one.batch.events if event.output]


def offering(*places: tuple[str, str], concurrency: int = 1, **fields: Any) -> NodeStatus:
    """The status of a node with these targets (adapter, target), each also called qwen."""
    return NodeStatus(version="test", policy_mode="guided", adapters=[
        AdapterState(adapter=adapter, concurrency=concurrency, targets=[
            TargetState(adapter=adapter, target=target, aliases=["qwen"], ready=True, retry_safe=True, **fields)])
        for adapter, target in places])


def asked(model: str = "qwen", **fields: Any) -> RunRequest:
    return RunRequest(target=model, prompt="hello", **fields)


def finish(node: FakeNode, run_id: str) -> None:
    request, = [one for one in node.all("run_request") if one.run_id == run_id]
    node.emit(request, 1, started(request.adapter, request.target), ending("completed", Outcome(code="ok")))


@pytest.fixture
def make_edge() -> Callable[..., FakeEdge]:
    return FakeEdge


@pytest.fixture
def edge() -> FakeEdge:
    return FakeEdge(entry("n1"))


@pytest.fixture
def two(make_edge: Callable[..., FakeEdge]) -> tuple[FakeEdge, FakeNode, FakeNode]:
    """qwen is o/small on n1 and v/big on n2, one run at a time on each."""
    edge = make_edge()
    return edge, edge.node("n1", told=offering(("o", "small"))), edge.node("n2", told=offering(("v", "big")))


@pytest.fixture
def world() -> World:
    """The management API over the fake edge of iop.testing."""
    return World()
