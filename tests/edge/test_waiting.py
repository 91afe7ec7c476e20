"""Runs that wait for a slot, through a whole edge."""

from __future__ import annotations

from typing import Any

import pytest

from iop.config import QueueConfig
from iop.edge import dispatch, runs, submit
from iop.errors import QueueFull
from iop.events import now_us
from iop.proto.run_pb2 import Limits, RunRejected
from iop.runs import START
from tests.edge.conftest import FakeEdge, entry, prompt, result_of, status


def test_runs_wait_when_all_slots_are_taken_and_go_when_one_is_free(edge: FakeEdge) -> None:
    node = edge.node(told=status(concurrency=1))
    edge.submit()
    waiting = edge.submit()
    assert waiting.state == "queued"
    assert edge.kinds().count("run_queued") == 1
    request = node.accept()
    node.play(request, "x")
    assert edge.run(waiting.run_id).state == "placed"
    assert node.last("run_request").run_id == waiting.run_id


def test_a_full_target_does_not_hold_up_another(make_edge: Any) -> None:
    edge = make_edge(entry("n1", "one", "two"))
    edge.node(told=status("one", "two", concurrency=4, target_concurrency=1))
    assert [edge.submit(prompt(name)).state for name in ("one", "one", "two")] == ["placed", "queued", "placed"]


def test_a_full_queue_refuses(make_edge: Any) -> None:
    edge = make_edge(entry("n1"), queue=QueueConfig(limit=1))
    assert edge.submit().state == "queued"
    with pytest.raises(QueueFull):
        edge.submit()


def test_waiting_too_long_ends_with_what_was_waited_for(edge: FakeEdge) -> None:
    away = edge.submit(prompt(limits=Limits(queue_s=5)))
    edge.clock.advance(6)
    assert edge.run(away.run_id).outcome_code == "no_node"
    edge.node(told=status(concurrency=1))
    edge.submit()
    busy = edge.submit(prompt(limits=Limits(queue_s=5)))
    edge.clock.advance(6)
    done = edge.run(busy.run_id)
    assert (done.state, done.outcome_code, done.attempt) == ("failed", "queue_timeout", 1)
    cursor = result_of(edge.service.cursor(busy.run_id, START))
    page = result_of(cursor.take(1 << 20))
    assert [(one.attempt, one.first_seq) for one in page] == [(1, 1)] and cursor.ended


@pytest.mark.parametrize("step_s", [-86_400, 86_400])
def test_a_clock_that_steps_by_a_day_changes_no_order_and_no_deadline(
        edge: FakeEdge, monkeypatch: pytest.MonkeyPatch, step_s: int) -> None:
    node = edge.node(told=status(concurrency=1))
    edge.submit()
    first = edge.submit(prompt(limits=Limits(queue_s=30)))
    edge.clock.advance(10)
    for module in (submit, dispatch, runs):
        monkeypatch.setattr(module, "now_us", lambda: now_us() + step_s * 1_000_000)
    second = edge.submit(prompt(limits=Limits(queue_s=30)))
    node.play(node.accept(), "x")
    assert node.accept().run_id == first.run_id
    node.send("run_rejected", RunRejected(run_id=first.run_id, attempt=1, code="queue_full", retryable=True))
    assert node.accept().run_id == second.run_id
    for _ in range(19):
        edge.clock.advance(1)
        node.pair.pump()
    assert edge.run(first.run_id).state == "queued"
    edge.clock.advance(1.5)
    assert edge.run(first.run_id).outcome_code == "queue_timeout"


def test_a_queued_run_is_placed_when_its_node_comes(edge: FakeEdge) -> None:
    record = edge.submit()
    node = edge.node()
    assert node.last("run_request").run_id == record.run_id
