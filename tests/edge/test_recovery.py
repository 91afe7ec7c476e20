"""An edge that starts again, and what becomes of the runs that were open."""

from __future__ import annotations

from typing import Any

from iop.events import ending, output
from iop.proto.link_pb2 import VERDICT_CANCEL, VERDICT_CONTINUE
from iop.proto.run_pb2 import Outcome
from iop.runs import START
from tests.edge.conftest import FakeEdge, entry, prompt, report, result_of, running, status, texts, verdicts


def test_a_cancel_while_the_node_is_away_outlives_the_edge(edge: FakeEdge) -> None:
    node = edge.node()
    request, unsent = running(edge, node), running(edge, node)
    node.pair.cut()
    for run in (request, unsent):
        edge.cancel(run.run_id)
    again = edge.restarted()
    node = again.node(reports=[report(request, 1, first=2)])
    assert verdicts(node)[request.run_id] == (VERDICT_CANCEL, 1)
    assert again.run(unsent.run_id).state == "cancelled"       # its node has lost it


def test_a_run_that_must_go_to_one_node_still_must_after_a_restart(make_edge: Any) -> None:
    edge = make_edge(entry("n1"), entry("n2"))
    edge.node("n1"), edge.node("n2")
    record = edge.submit(prompt("n2/mock/echo", retry_safe=True))
    again = edge.restarted()
    free = again.node("n1")
    assert again.node("n2").last("run_request").run_id == record.run_id
    assert free.all("run_request") == []


def test_an_edge_that_starts_again_takes_up_what_was_open(edge: FakeEdge) -> None:
    node = edge.node(told=status(concurrency=2))
    request = running(edge, node, "a")
    lost = edge.submit()
    waiting = edge.submit()
    assert waiting.state == "queued"
    again = edge.restarted()
    assert again.run(request.run_id).state == "disconnected"
    assert again.service.health()["runs_open"] == 3
    node = again.node(reports=[report(request, 3)], told=status(concurrency=2))
    assert verdicts(node)[request.run_id] == (VERDICT_CONTINUE, 2)
    node.emit(request, 2, output("a"), output("b"), ending("completed", Outcome(code="ok")))
    assert again.run(request.run_id).state == "completed"
    cursor = result_of(again.service.cursor(request.run_id, START))
    assert texts(result_of(cursor.take(1 << 20))) == ["a", "b"]
    # The one that its node does not know is sent again; the one that ended made room for the one that waited.
    assert [request.run_id for request in node.all("run_request")] == [lost.run_id, waiting.run_id]
    assert [again.run(run.run_id).state for run in (lost, waiting)] == ["placed", "placed"]


def test_an_edge_that_starts_again_waits_only_so_long(edge: FakeEdge) -> None:
    node = edge.node()
    request = running(edge, node)
    waiting = edge.submit(prompt(labels={"gpu": "yes"}))
    again = edge.restarted()
    again.clock.advance(601)
    assert again.run(request.run_id).outcome_code == "node_lost"
    assert again.run(waiting.run_id).outcome_code == "no_node"
