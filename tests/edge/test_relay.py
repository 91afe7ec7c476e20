"""Events on their way from a node to readers and history, and what the node is told of them."""

from __future__ import annotations

from typing import Any

import pytest

from iop.edge import acks
from iop.edge.packing import unpack
from iop.events import ending, output, started
from iop.proto.run_pb2 import Outcome, RunRejected, RunRequest
from iop.records import BatchRow
from iop.runs import START
from tests.edge.conftest import FakeEdge, result_of, status, texts


def test_acknowledged_is_only_what_is_committed_and_once_a_commit(edge: FakeEdge) -> None:
    node = edge.node()
    edge.submit()
    request = node.accept()
    edge.history.held = True
    cursor = result_of(edge.service.cursor(request.run_id, START))
    for number in range(1, 4):
        node.emit(request, number, output(str(number)))
    assert texts(cursor.take(1 << 20)) == ["1", "2", "3"], "live relay does not wait for the disk"
    assert not node.all("event_ack")
    edge.history.commit()
    assert [ack.through_seq for ack in node.all("event_ack")] == [1]
    edge.clock.advance(acks.PACE_S)
    assert [ack.through_seq for ack in node.all("event_ack")] == [1]
    edge.history.commit()
    assert [ack.through_seq for ack in node.all("event_ack")] == [1, 3], "what came during a commit is the next one"


def test_readers_are_told_once_for_all_that_one_read_brought(edge: FakeEdge) -> None:
    node = edge.node()
    edge.submit()
    request = node.accept()
    told: list[int] = []
    result_of(edge.service.cursor(request.run_id, START)).notify(lambda: told.append(1))
    for number in range(1, 4):
        node.link.send("event_batch", _batch(request, number, output("x")))
    node.pair.pump()
    assert told == [1]


def test_what_one_read_brings_of_a_run_is_one_entry_and_one_row(edge: FakeEdge) -> None:
    node = edge.node()
    edge.submit()
    edge.submit()
    one, other = node.all("run_request")
    for number in range(1, 4):
        for request in (one, other):
            node.link.send("event_batch", _batch(request, number, output(str(number))))
    node.pair.pump()
    for request in (one, other):
        entries = result_of(edge.service.cursor(request.run_id, START)).take(1 << 20)
        assert [(entry.first_seq, entry.last_seq) for entry in entries] == [(1, 3)]
        assert texts(entries) == ["1", "2", "3"]
        assert [unpack(packed) for packed in result_of(edge.history.batches(request.run_id, START, 1 << 20))] == [
            entry.batch for entry in entries]


def test_a_later_state_of_a_run_is_written_behind_the_earlier_one(edge: FakeEdge) -> None:
    node = edge.node()
    edge.submit()
    edge.submit()
    one, other = node.all("run_request")
    edge.history.held = True
    node.emit(one, 1, output("under way"))
    node.emit(other, 1, output("waits for its commit"))
    node.pair.cut()
    edge.history.held = False
    edge.history.commit()
    assert edge.run(other.run_id).state == edge.history.kept.runs[other.run_id].state == "disconnected"


def test_events_are_heard_before_what_the_node_says_after_them(edge: FakeEdge) -> None:
    node = edge.node(told=status(concurrency=1))
    edge.submit()
    request = node.last("run_request")
    node.link.send("event_batch", _batch(request, 1, output("x")))
    node.link.send("run_rejected", RunRejected(run_id=request.run_id, attempt=1, code="busy"))
    node.pair.pump()
    first = unpack(result_of(edge.history.batches(request.run_id, START, 1))[0])
    assert [event.output for event in first.events] == ["x"]


def _batch(request: RunRequest, first_seq: int, *events: Any) -> Any:
    from iop.proto.run_pb2 import EventBatch
    return EventBatch(run_id=request.run_id, attempt=request.attempt, first_seq=first_seq, events=events)


def test_a_hole_is_asked_for_once(edge: FakeEdge) -> None:
    node = edge.node()
    edge.submit()
    request = node.accept()
    node.emit(request, 1, output("a"))
    node.emit(request, 3, output("c"))
    node.emit(request, 4, output("d"))
    assert [word.from_seq for word in node.all("resend")] == [2]
    node.emit(request, 2, output("b"))
    node.emit(request, 3, output("c"), output("d"))
    cursor = result_of(edge.service.cursor(request.run_id, START))
    assert texts(cursor.take(1 << 20)) == ["a", "b", "c", "d"]


def test_history_that_fails_stops_nothing_and_everything_follows_in_order(edge: FakeEdge) -> None:
    node = edge.node()
    edge.submit()
    request = node.accept()
    node.emit(request, 1, output("a"))
    edge.history.trouble = "the disk is full"
    node.emit(request, 2, output("b"))
    edge.history.trouble = ""
    node.emit(request, 3, output("c"))
    assert node.last("event_ack").through_seq == 1
    assert not edge.service.health()["ready"]
    edge.clock.advance(1)
    assert node.last("event_ack").through_seq == 3
    assert edge.service.health()["ready"]


@pytest.mark.parametrize("ends", [False, True])
def test_a_run_whose_events_history_can_never_take_is_stopped_and_ends_once(edge: FakeEdge, ends: bool) -> None:
    node = edge.node()
    record, other = edge.submit(), edge.submit()
    refused, request = node.all("run_request")
    edge.history.append([BatchRow(record.run_id, 1, 1, 5, b"of another edge")])
    if ends:
        node.emit(refused, 1, started("mock", "echo"), ending("completed", Outcome(code="ok")))
    else:
        node.emit(refused, 1, started("mock", "echo"))
    assert [word.run_id for word in node.all("cancel_request")] == [record.run_id]
    stored = edge.history.kept.runs[record.run_id]
    assert (stored.state, stored.outcome_code, stored.attempt) == ("failed", "history_conflict", 2)
    assert edge.service.health()["ready"] and edge.service.node("n1").running == 1
    node.emit(refused, 2, output("late"))
    node.play(request, "x")
    assert edge.history.kept.runs[other.run_id].state == "completed"
    edge.clock.advance(60)
    assert edge.history.kept.runs[record.run_id].state == "failed"
