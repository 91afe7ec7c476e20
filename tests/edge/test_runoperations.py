"""What is asked of runs that are there: to end, to be forgotten, to take input."""

from __future__ import annotations

import pytest

from iop.errors import Conflict, HistoryUnavailable, NoSuchRun
from iop.events import ending, started
from iop.proto.run_pb2 import Outcome
from tests.edge.conftest import PERSON, FakeEdge, result_of, status


def test_a_run_that_is_to_be_forgotten_stays_in_the_record(edge: FakeEdge) -> None:
    node = edge.node()
    record = edge.submit()
    with pytest.raises(Conflict):
        result_of(edge.service.forget(record.run_id, PERSON))
    node.play(node.accept(), "a")
    result_of(edge.service.forget(record.run_id, PERSON))
    assert edge.run(record.run_id).forgotten and edge.run(record.run_id).state == "completed"
    assert edge.history.kept.audits[-1][1] == "forget"


def test_cancel_works_in_every_phase_and_twice(edge: FakeEdge) -> None:
    waiting = edge.submit()
    assert edge.cancel(waiting.run_id).state == "cancelled"
    assert edge.cancel(waiting.run_id).state == "cancelled"
    node = edge.node()
    running = edge.submit()
    request = node.accept()
    node.emit(request, 1, started("mock", "echo"))
    assert edge.cancel(running.run_id).state == "running"
    edge.cancel(running.run_id)
    assert [word.run_id for word in node.all("cancel_request")] == [running.run_id] * 2
    node.emit(request, 2, ending("cancelled", Outcome(code="cancelled")))
    assert edge.run(running.run_id).state == "cancelled"
    assert edge.cancel(running.run_id).state == "cancelled"
    with pytest.raises(NoSuchRun):
        edge.cancel("f" * 32)
    assert [action for _, action, _ in edge.history.kept.audits] == ["cancel"] * 3


def test_a_run_cancelled_while_its_placement_is_stored_is_never_sent(edge: FakeEdge) -> None:
    record = edge.submit()
    edge.history.held = True
    node = edge.node()
    cancelled = edge.service.cancel(record.run_id, PERSON)
    edge.history.commit()
    edge.history.commit()
    node.pair.pump()
    edge.history.commit()
    assert result_of(cancelled).run_id == record.run_id
    edge.history.held = False
    edge.history.commit()
    state = edge.run(record.run_id).state
    assert state == "cancelled" or node.all("cancel_request")


def test_what_changes_something_is_audited_first_or_not_done(edge: FakeEdge) -> None:
    node = edge.node()
    record = edge.submit()
    edge.history.trouble = "the disk is full"
    for asked in (edge.service.cancel(record.run_id, PERSON), edge.service.drain("n1", True, PERSON),
                  edge.service.label("n1", {"a": "b"}, PERSON), edge.service.command("n1", "status", PERSON)):
        with pytest.raises(HistoryUnavailable):
            result_of(asked)
    assert not node.all("cancel_request") and not node.all("node_command_request")
    assert not edge.service.node("n1").draining and "a" not in edge.service.node("n1").labels


def test_input_reaches_the_running_program_only(edge: FakeEdge) -> None:
    record = edge.submit()
    with pytest.raises(Conflict):
        result_of(edge.service.give_input(record.run_id, b"x", False, PERSON))
    node = edge.node()
    node.accept()
    result_of(edge.service.give_input(record.run_id, b"x", True, PERSON))
    assert (node.last("run_input").data, node.last("run_input").end) == (b"x", True)


def test_input_to_a_run_that_takes_none_is_refused_at_once(edge: FakeEdge) -> None:
    told = status()
    told.adapters[0].targets[0].takes_input = False
    node = edge.node(told=told)
    record = edge.submit()
    node.accept()
    with pytest.raises(Conflict, match="takes no input"):
        result_of(edge.service.give_input(record.run_id, b"x", False, PERSON))
    assert not node.all("run_input") and not edge.history.kept.audits
    # What holds for a run is what its target said when it was sent.
    told.adapters[0].targets[0].takes_input = True
    node.send("node_status", told)
    with pytest.raises(Conflict, match="takes no input"):
        result_of(edge.service.give_input(record.run_id, b"x", False, PERSON))
    later = edge.submit()
    result_of(edge.service.give_input(later.run_id, b"x", False, PERSON))
    assert node.last("run_input").run_id == later.run_id
