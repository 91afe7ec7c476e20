"""Ten thousand cancels, each in a phase that chance chooses, leave no slot taken."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from iop.config import QueueConfig
from iop.edge.dispatch import REFUSED_S
from iop.errors import IOPError
from iop.events import ending, output, started
from iop.proto.run_pb2 import EventBatch, Outcome, RunAccepted, RunRejected, RunRequest, Source
from iop.testing.history import FakeHistory
from tests.edge.conftest import PERSON, FakeEdge, FakeNode, entry, prompt, status

CANCELS = 10_000
SLOTS = 4


class World:
    """One edge and two nodes with a few slots; each step lets chance do one thing to one run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.history = FakeHistory()
        self.edge = FakeEdge(entry("n1"), entry("n2"), history=self.history, queue=QueueConfig(limit=100))
        self.nodes = {name: self.edge.node(name, told=status(concurrency=SLOTS)) for name in ("n1", "n2")}
        self.cancelled = 0
        self.phases: Counter[str] = Counter()
        self.asked: list[str] = []                   # run_ids that were submitted and not cancelled yet
        self.at_node: dict[str, tuple[FakeNode, RunRequest, str]] = {}   # run_id -> its phase there
        self.seen = dict.fromkeys(self.nodes, 0)     # messages of each node that were looked at

    @property
    def runs(self) -> Any:
        return self.edge.service._runs

    def step(self) -> None:
        self.random.choices([self.submit, self.cancel, self.node_moves, self.commit, self.hold, self.fail],
                            [50, 60, 120, 30, 10, 1])[0]()
        self.read()

    def submit(self) -> None:
        source = Source(face="http", principal=self.random.choice("abc"))
        submitted: Any = self.edge.service.submit(
            prompt(session_id=self.random.choice(["", "", "s1", "s2"]), retry_safe=self.random.random() < 0.5), source)
        if self.random.random() < 0.1:
            submitted.addErrback(lambda _: None)
            submitted.cancel()                       # its client left before it was stored
            self.count("storing")
        else:
            submitted.addCallbacks(lambda record: self.asked.append(record.run_id), lambda failure: failure.trap(IOPError))

    def cancel(self) -> None:
        if not self.asked:
            return
        run_id = self.asked.pop(self.random.randrange(len(self.asked)))
        phase = self.at_node[run_id][2] if run_id in self.at_node else None
        run = self.runs.get(run_id)
        self.count(phase or ("ended" if run is None else run.record.state))
        self.edge.service.cancel(run_id, PERSON).addErrback(lambda failure: failure.trap(IOPError))

    def count(self, phase: str) -> None:
        self.cancelled += 1
        self.phases[phase] += 1

    def hold(self) -> None:
        self.history.held = True

    def commit(self) -> None:
        self.history.held = False
        self.history.commit()

    def fail(self) -> None:
        """History takes nothing for a while."""
        self.history.trouble = "the disk is full"
        self.commit()
        self.history.trouble = ""
        self.edge.clock.advance(2.0)

    def read(self) -> None:
        """What the nodes were sent."""
        for name, node in self.nodes.items():
            node.pair.pump()
            for kind, message in node.got[self.seen[name]:]:
                if kind == "run_request":
                    self.at_node[message.run_id] = node, message, "sent"
                elif kind == "cancel_request" and message.run_id in self.at_node:
                    _, request, _ = self.at_node[message.run_id]
                    self.at_node[message.run_id] = node, request, "stopping"
            node.got.clear()
            self.seen[name] = 0

    def node_moves(self) -> None:
        """A node goes on with one of its runs: accepts, refuses, tells something, or ends."""
        if not self.at_node:
            return
        run_id = self.random.choice(list(self.at_node))
        node, request, phase = self.at_node[run_id]
        if phase == "sent" and self.random.random() < 0.1:
            del self.at_node[run_id]
            node.send("run_rejected", RunRejected(run_id=run_id, attempt=request.attempt, code="draining", retryable=True))
            self.edge.clock.advance(REFUSED_S)
        elif phase == "sent":
            node.send("run_accepted", RunAccepted(run_id=run_id, attempt=request.attempt))
            self.at_node[run_id] = node, request, "accepted"
        elif phase == "accepted":
            self.tell(node, request, 1, started("mock", "echo"), output("x"))
            self.at_node[run_id] = node, request, "running"
        else:
            self.end(run_id, "cancelled" if phase == "stopping" else "completed")

    def end(self, run_id: str, kind: str) -> None:
        node, request, _ = self.at_node.pop(run_id)
        run = self.runs.get(run_id)
        first = run.log.last.seq + 1 if run is not None and run.log.last.attempt == request.attempt else 1
        self.tell(node, request, first, ending(kind, Outcome(code="ok" if kind == "completed" else kind)))

    def tell(self, node: FakeNode, request: RunRequest, first_seq: int, *events: Any) -> None:
        node.send("event_batch", EventBatch(run_id=request.run_id, attempt=request.attempt, first_seq=first_seq,
                                            events=events))

    def check(self) -> None:
        """A slot is taken by exactly the runs that are with a node, or about to be sent there."""
        for name in self.nodes:
            node = self.edge.service._registry.node(name)
            busy = {run_id for run_id, (fake, _, _) in self.at_node.items() if fake is self.nodes[name]}
            assert busy <= set(node._slots), "a slot was given away before its node said that the run had ended"
            assert len(node._slots) <= SLOTS


@pytest.mark.parametrize("seed", [1, 2])
def test_ten_thousand_cancels_in_any_phase_leave_no_slot_taken(seed: int) -> None:
    world = World(seed)
    while world.cancelled < CANCELS // 2:
        world.step()
        if world.cancelled % 50 == 0:
            world.check()
    world.commit()
    while world.asked or world.at_node:
        world.cancel()
        world.read()
        world.node_moves()
        world.read()
    world.edge.clock.advance(1000)
    service = world.edge.service
    assert [(node.node_id, node.running) for node in service.nodes()] == [("n1", 0), ("n2", 0)]
    assert not len(service._runs) and not len(service._queue) and not service._dispatcher._slots._running
    assert all(not node._taken[name] for node in service._registry for name in node._taken)
    assert {"storing", "queued", "placed", "sent", "accepted", "running", "ended"} <= set(world.phases), world.phases
    assert min(world.phases.values()) > 20, world.phases
    assert all(run.ended_us for run in world.history.kept.runs.values())
    assert service.health()["queued"] == 0 and not service._queue._held and not service._queue._owned
