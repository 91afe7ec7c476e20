"""A run whose backend failed before it said anything, and where it goes."""

from __future__ import annotations

from typing import Any

import pytest

from iop.events import ending, output, started
from iop.proto.run_pb2 import EventBatch, Outcome
from tests.edge.conftest import PERSON, FakeEdge, FakeNode, asked, finish, offering, report

BROKEN = Outcome(code="upstream_error", message="The backend cannot be reached.", retryable=True, upstream_status=503)


def fail(node: FakeNode, *before: Any, outcome: Outcome = BROKEN) -> None:
    node.emit(node.last("run_request"), 1, *before, ending("failed", outcome))


@pytest.mark.parametrize("outcome", [BROKEN, Outcome(code="adapter_error", message="No memory.", retryable=True)])
def test_a_run_whose_backend_failed_in_silence_goes_to_another_node(
        two: tuple[FakeEdge, FakeNode, FakeNode], outcome: Outcome) -> None:
    edge, n1, n2 = two
    run = edge.submit(asked())
    n1.accept()
    fail(n1, outcome=outcome)
    moved = edge.run(run.run_id)
    assert (moved.node_id, moved.attempt, moved.state, moved.target) == ("n2", 2, "placed", "big")
    assert list(edge.history.kept.late) == [(run.run_id, 1, 1)], "how the first attempt ended is kept apart"
    assert n1.last("event_ack").through_seq == 1, "its node may forget it"
    assert edge.kinds().count("run_failed_over") == 1
    finish(n2, run.run_id)
    assert edge.run(run.run_id).state == "completed"
    assert edge.submit(asked()).node_id == "n1", "its slot there is free again"


@pytest.mark.parametrize("again", [False, True])
def test_a_node_that_tells_of_its_attempt_once_more_when_the_run_is_long_elsewhere_is_acknowledged(
        two: tuple[FakeEdge, FakeNode, FakeNode], again: bool) -> None:
    """Its acknowledgement is lost with a crash of its machine; a link closed for it would be closed for ever."""
    edge, n1, n2 = two
    run = edge.submit(asked())
    request = n1.accept()
    fail(n1)
    finish(n2, run.run_id)
    edge.clock.advance(3600)
    if again:
        n1.pair.cut()
        n1 = edge.node("n1", instance="2", reports=[report(request, 1, first=1, open_=False)])
    n1.emit(request, 1, ending("failed", BROKEN))
    assert edge.service.node("n1").state == "up"
    assert n1.last("event_ack").through_seq == 1
    assert list(edge.history.kept.late) == [(run.run_id, 1, 1)]
    assert edge.run(run.run_id).state == "completed"


def test_another_target_of_its_alias_on_the_same_node_will_do(make_edge: Any) -> None:
    edge = make_edge()
    node = edge.node("n1", told=offering(("o", "small"), ("v", "big")))
    run = edge.submit(asked())
    first = node.accept()
    fail(node)
    second = node.accept()
    assert {(first.adapter, first.attempt), (second.adapter, second.attempt)} == {("o", 1), ("v", 2)}
    node.emit(second, 1, started("v", "big"), output("so"), ending("completed", Outcome(code="ok")))
    assert edge.run(run.run_id).state == "completed"


def test_where_all_have_failed_the_last_ones_words_are_the_answer(two: tuple[FakeEdge, FakeNode, FakeNode]) -> None:
    edge, n1, n2 = two
    run = edge.submit(asked())
    fail(n1)
    fail(n2, outcome=Outcome(code="upstream_error", message="also", retryable=True, upstream_status=502))
    ended = edge.run(run.run_id)
    assert (ended.state, ended.attempt, ended.node_id) == ("failed", 2, "n2")
    assert (Outcome.FromString(ended.outcome).message, Outcome.FromString(ended.outcome).upstream_status) == ("also", 502)


def test_a_backend_that_began_and_said_nothing_has_failed_in_silence(two: tuple[FakeEdge, FakeNode, FakeNode]) -> None:
    """vLLM answers 200 before it reads the prompt."""
    edge, n1, n2 = two
    run = edge.submit(asked())
    request = n1.accept()
    n1.emit(request, 1, started("o", "small"))
    assert edge.run(run.run_id).state == "running"
    n1.emit(request, 2, ending("failed", BROKEN))
    moved = edge.run(run.run_id)
    assert (moved.node_id, moved.attempt, moved.state, moved.started_us) == ("n2", 2, "placed", 0)
    assert n1.last("event_ack").through_seq == 2
    n2.accept()
    n2.emit(n2.last("run_request"), 1, started("v", "big"))
    assert edge.run(run.run_id).state == "running"
    n2.emit(n2.last("run_request"), 2, output("so"), ending("completed", Outcome(code="ok")))
    assert edge.run(run.run_id).state == "completed"
    kept = [(batch.attempt, batch.first_seq) for batch in edge.history.kept.batches[run.run_id]]
    assert kept == [(1, 1), (2, 1), (2, 2)]


def test_what_an_earlier_start_of_the_edge_took_in_may_have_been_output(two: tuple[FakeEdge, FakeNode, FakeNode]) -> None:
    edge, n1, _ = two
    run = edge.submit(asked())
    request = n1.accept()
    n1.emit(request, 1, started("o", "small"), output("so"))
    again = edge.restarted()
    n2 = again.node("n2", told=offering(("v", "big")))
    n1 = again.node("n1", [report(request, 3, first=3, open_=False)], told=offering(("o", "small")))
    n1.send("event_batch", EventBatch(run_id=run.run_id, attempt=1, first_seq=3, events=[ending("failed", BROKEN)]))
    assert again.run(run.run_id).state == "failed" and not n2.all("run_request")


@pytest.mark.parametrize("why", ["output", "output before", "a limit", "not retryable", "not safe", "pinned", "session",
                                 "the other is away"])
def test_a_failure_is_the_answer_where_another_node_would_not_be_right(
        two: tuple[FakeEdge, FakeNode, FakeNode], why: str) -> None:
    edge, n1, n2 = two
    request = {"not safe": asked(retry_safe=False), "pinned": asked("n1/o/small"), "session": asked(session_id="s")}
    run = edge.submit(request.get(why, asked()))
    if why == "the other is away":
        away = offering(("v", "big"))
        away.adapters[0].targets[0].ready = False
        n2.send("node_status", away)
    before = [output("so")] if why == "output" else []
    if why == "output before":
        n1.emit(n1.last("run_request"), 1, output("so"))
        n1.emit(n1.last("run_request"), 2, ending("failed", BROKEN))
    else:
        fail(n1, *before, outcome={"not retryable": Outcome(code="upstream_error"),
                                   "a limit": Outcome(code="first_output_timeout", retryable=True)}.get(why, BROKEN))
    assert (edge.run(run.run_id).state, edge.run(run.run_id).attempt) == ("failed", 1)
    assert not n2.all("run_request") and not edge.history.kept.late


def test_a_run_that_somebody_cancels_does_not_move(two: tuple[FakeEdge, FakeNode, FakeNode]) -> None:
    edge, n1, n2 = two
    run = edge.submit(asked())
    n1.accept()
    edge.service.cancel(run.run_id, PERSON)
    fail(n1)
    assert edge.run(run.run_id).state == "failed" and not n2.all("run_request")
