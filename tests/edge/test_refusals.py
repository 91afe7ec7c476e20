"""Nodes that refuse a run, or say nothing of it."""

from __future__ import annotations

from typing import Any

import pytest

from iop.proto.run_pb2 import RunRejected
from tests.edge.conftest import FakeEdge, entry, prompt


def test_a_refusal_that_may_pass_is_tried_again_and_one_that_will_not_ends_the_run(edge: FakeEdge) -> None:
    node = edge.node()
    record = edge.submit()
    request = node.accept()
    node.send("run_rejected", RunRejected(run_id=request.run_id, attempt=1, code="draining", message="No.", retryable=True))
    assert edge.run(record.run_id).state == "queued"
    assert edge.service.node("n1").running == 0
    edge.clock.advance(1)
    assert node.last("run_request").attempt == 2
    node.send("run_rejected", RunRejected(run_id=request.run_id, attempt=2, code="policy_denied", message="Never."))
    done = edge.run(record.run_id)
    assert (done.state, done.outcome_code, done.attempt) == ("failed", "policy_denied", 3)


def test_a_node_that_always_refuses_does_not_keep_a_run_for_ever(edge: FakeEdge) -> None:
    node = edge.node()
    record = edge.submit()
    for attempt in range(1, 20):
        if edge.run(record.run_id).ended:
            break
        node.send("run_rejected", RunRejected(run_id=record.run_id, attempt=attempt, code="draining", retryable=True))
        edge.clock.advance(1)
        node.pair.pump()
    assert edge.run(record.run_id).outcome_code == "draining"
    assert len(node.all("run_request")) == 6


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_node_that_never_answers_does_not_keep_a_run_for_ever(edge: FakeEdge, cancelled: bool) -> None:
    node = edge.node()
    silent, taken = edge.submit(), edge.submit()
    node.accept()
    if cancelled:
        edge.cancel(silent.run_id)
    for _ in range(35):
        edge.clock.advance(1)
        node.pair.pump()
    ended = edge.run(silent.run_id)
    assert (ended.state, ended.outcome_code) == (("cancelled", "cancelled") if cancelled else ("failed", "start_timeout"))
    assert silent.run_id in [order.run_id for order in node.all("cancel_request")]
    assert edge.run(taken.run_id).state == "placed"


def test_a_run_that_may_be_begun_again_goes_to_another_node_when_one_does_not_answer(make_edge: Any) -> None:
    edge = make_edge(entry("n1"), entry("n2"))
    node, other = edge.node("n1"), edge.node("n2")
    edge.submit(prompt(retry_safe=True))
    assert node.last("run_request").attempt == 1
    for _ in range(31):
        edge.clock.advance(1)
        node.pair.pump()
        other.pair.pump()
    assert other.last("run_request").attempt == 2
