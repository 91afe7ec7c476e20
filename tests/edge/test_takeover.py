"""A node that is drained or dies under load: what waits goes to the other one at once; nothing is lost or runs twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from iop.events import ending, output, started
from iop.proto.run_pb2 import EventBatch, Outcome, RunAccepted, RunRequest
from tests.edge.conftest import FakeEdge, FakeNode, entry, prompt, status

RUNS = 40
SLOTS = 4


class Worker(FakeNode):
    """Carries out what it is sent: a run takes three of its steps."""

    def __init__(self, edge: FakeEdge, node_id: str) -> None:
        self.begun: list[str] = []
        self.under_way: dict[str, tuple[RunRequest, int]] = {}
        super().__init__(edge, node_id, [])
        self.ready(status(concurrency=SLOTS))

    def frame_received(self, link: Any, kind: str, message: Any, packed: bytes) -> None:
        super().frame_received(link, kind, message, packed)
        if kind == "run_request":
            assert len(self.under_way) < SLOTS, "more than its slots"
            self.begun.append(message.run_id)
            self.under_way[message.run_id] = (message, 0)
            link.send("run_accepted", RunAccepted(run_id=message.run_id, attempt=message.attempt))

    def step(self) -> None:
        events = [started("mock", "echo"), output("x"), ending("completed", Outcome(code="ok"))]
        for run_id, (request, done) in list(self.under_way.items()):
            if done == 2:
                del self.under_way[run_id]       # before the edge hears of it and sends the next one
            else:
                self.under_way[run_id] = (request, done + 1)
            self.link.send("event_batch", EventBatch(run_id=run_id, attempt=request.attempt, first_seq=done + 1,
                                                     events=[events[done]]))
        self.pair.pump()


@pytest.fixture
def load(make_edge: Any) -> tuple[FakeEdge, Worker, Worker, list[str]]:
    edge = make_edge(entry("n1"), entry("n2"))
    one, two = Worker(edge, "n1"), Worker(edge, "n2")
    ids = [edge.submit(prompt(text=str(number))).run_id for number in range(RUNS)]
    for node in (one, two):
        node.pair.pump()
        node.step()
    assert edge.service.health()["runs_open"] == RUNS
    assert len(one.under_way) == len(two.under_way) == SLOTS
    return edge, one, two, ids


def run_out(edge: FakeEdge, *nodes: Worker) -> None:
    for _ in range(10 * RUNS):
        for node in nodes:
            node.pair.pump()
            node.step()
        if not edge.service.health()["runs_open"]:
            return
    raise AssertionError("runs are left")


def test_a_drained_node_ends_what_it_has_and_the_other_takes_all_that_waits(load: Any) -> None:
    edge, one, two, ids = load
    had = list(one.begun)
    edge.service.drain("n1", True, None)
    run_out(edge, one, two)
    assert one.begun == had, "a drained node was given a run"
    assert {edge.run(run_id).state for run_id in ids} == {"completed"}
    assert set(Counter(one.begun + two.begun).values()) == {1}
    assert edge.service.node("n1").running == 0
    # Taken back, it is given work again.
    edge.service.drain("n1", False, None)
    for number in range(2 * SLOTS):
        edge.submit(prompt(text=str(number)))
    one.pair.pump()
    assert len(one.under_way) == SLOTS


def test_what_waits_goes_on_at_once_when_a_node_dies_and_what_it_had_ends_once(load: Any) -> None:
    edge, one, two, ids = load
    had = set(one.begun)
    one.pair.cut()
    assert {edge.run(run_id).state for run_id in had} == {"disconnected"}
    for _ in range(10 * RUNS):
        two.pair.pump()
        two.step()
    assert {edge.run(run_id).state for run_id in set(ids) - had} == {"completed"}
    edge.clock.advance(601)
    assert {edge.run(run_id).outcome_code for run_id in had} == {"node_lost"}
    assert edge.kinds().count("run_ended") == RUNS
    assert set(Counter(one.begun + two.begun).values()) == {1}


def test_a_node_that_comes_takes_its_share_of_what_waits(make_edge: Any) -> None:
    edge = make_edge(entry("n1"), entry("n2"))
    one = Worker(edge, "n1")
    ids = [edge.submit(prompt(text=str(number))).run_id for number in range(RUNS)]
    two = Worker(edge, "n2")
    two.pair.pump()
    assert len(two.under_way) == SLOTS
    run_out(edge, one, two)
    assert {edge.run(run_id).state for run_id in ids} == {"completed"}
    assert set(Counter(one.begun + two.begun).values()) == {1}
