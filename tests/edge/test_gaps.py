"""A history that is older than what nodes were told to let go of: holes are told, runs go on, endings stay true (E7)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from iop.edge.firstreports import REPORTED_S
from iop.edge.packing import unpack
from iop.edge.reports import Standing, standing
from iop.errors import NoSuchRun
from iop.events import batch_dicts, ending, output, started
from iop.proto.link_pb2 import VERDICT_CONTINUE, VERDICT_FENCED, VERDICT_UNKNOWN
from iop.proto.run_pb2 import Outcome, RunRejected, Totals
from iop.runs import START, EventId
from iop.testing.history import FakeHistory
from tests.edge.conftest import FakeEdge, entry, report, result_of, running, status, verdicts

OK = ending("completed", Outcome(code="ok"))


def set_back(edge: FakeEdge, kept: Any) -> FakeEdge:
    """Another process, on a copy of the history that was made earlier."""
    edge.service.stop()
    return FakeEdge(*edge.service._config.nodes, history=FakeHistory(kept=kept))


def seen(edge: FakeEdge, run_id: str, after: EventId = START) -> list[str]:
    """What a reader behind `after` is told: the output, or ID:type; and of a gap what it names."""
    cursor, told = result_of(edge.service.cursor(run_id, after)), []
    while not cursor.ended:
        taken = cursor.take(1)
        entries = taken if isinstance(taken, list) else result_of(taken)
        if not entries:
            break
        for event in (event for one in entries for event in batch_dicts(one.batch)):
            if event["type"] == "gap":
                told.append(f"gap {event['first_seq']}+{event['missing']}={event['id']}")
            else:
                told.append(str(event.get("text") or event["type"]))
    cursor.close()
    return told


def rolled_back(edge: FakeEdge) -> tuple[FakeEdge, Any]:
    """A run of which history has two events, and its node six, of which four were acknowledged."""
    node = edge.node()
    request = running(edge, node, "a")
    kept = copy.deepcopy(edge.history.kept)
    for number, text in enumerate("bcde", 3):
        node.emit(request, number, output(text))
    return set_back(edge, kept), request


def test_a_real_hole_becomes_a_gap_and_the_run_goes_on_marked_incomplete(edge: FakeEdge) -> None:
    again, request = rolled_back(edge)
    node = again.node(reports=[report(request, 6, first=5)])
    assert verdicts(node)[request.run_id] == (VERDICT_CONTINUE, 4)
    node.emit(request, 5, output("d"), output("e"), OK)
    told = again.run(request.run_id)
    assert (told.state, told.attempt, told.as_dict()["incomplete"]) == ("completed", 1, True)
    assert again.history.kept.runs[request.run_id].incomplete == 1
    assert seen(again, request.run_id) == ["started", "a", "gap 3+2=1.4", "d", "e", "completed"]
    rows = [(row.first_seq, row.last_seq) for row in again.history.kept.batches[request.run_id]]
    assert rows[-2:] == [(4, 4), (5, 7)]
    # A run that is whole is not marked.
    whole = again.submit()
    node.play(node.accept(), "x")
    assert again.run(whole.run_id).as_dict()["incomplete"] is False


def test_a_reader_that_saw_what_is_lost_now_is_told_only_of_what_it_has_not_seen(edge: FakeEdge) -> None:
    again, request = rolled_back(edge)
    node = again.node(reports=[report(request, 6, first=6)])
    node.emit(request, 6, output("e"), OK)
    for where in (again, again.restarted()):     # from the tail, and from history
        assert seen(where, request.run_id, EventId(1, 2)) == ["gap 3+3=1.5", "e", "completed"]
        assert seen(where, request.run_id, EventId(1, 4)) == ["gap 5+1=1.5", "e", "completed"]
        assert seen(where, request.run_id, EventId(1, 5)) == ["e", "completed"]


def test_a_gap_outlives_the_edge_and_is_told_once(edge: FakeEdge) -> None:
    again, request = rolled_back(edge)
    again.node(reports=[report(request, 6, first=5)])
    third = again.restarted()
    node = third.node(reports=[report(request, 6, first=5)])
    assert verdicts(node)[request.run_id] == (VERDICT_CONTINUE, 4)
    node.emit(request, 5, output("d"), OK)
    assert seen(third, request.run_id) == ["started", "a", "gap 3+2=1.4", "d", "completed"]
    assert third.run(request.run_id).incomplete


def test_a_run_whose_ending_alone_can_still_come_ends_as_it_ended(edge: FakeEdge) -> None:
    again, request = rolled_back(edge)
    node = again.node(reports=[report(request, 7, first=7, open_=False)])
    assert verdicts(node)[request.run_id] == (VERDICT_CONTINUE, 6)
    node.emit(request, 7, OK)
    assert (again.run(request.run_id).state, again.run(request.run_id).attempt) == ("completed", 1)
    assert seen(again, request.run_id) == ["started", "a", "gap 3+4=1.6", "completed"]


@pytest.mark.parametrize("known", [False, True])
def test_a_run_that_ended_in_what_history_lost_ends_once_as_history_gap(edge: FakeEdge, known: bool) -> None:
    again, request = rolled_back(edge)
    node = again.node(reports=[report(request, 7, first=8, open_=False)] if known else [])
    if known:
        assert verdicts(node)[request.run_id][0] == VERDICT_FENCED
    ended = again.run(request.run_id)
    assert (ended.state, ended.outcome_code, ended.attempt) == ("failed", "history_gap", 2)
    assert ended.incomplete and again.kinds().count("run_ended") == 1
    assert again.service.node("n1").running == 0
    node.pair.cut()
    assert not again.node().all("run_request")


def test_a_run_that_ended_before_anything_of_it_was_kept_is_not_begun_again(edge: FakeEdge) -> None:
    node = edge.node()
    record = edge.submit()
    kept = copy.deepcopy(edge.history.kept)
    node.play(node.accept(), "a")
    again = set_back(edge, kept)
    node = again.node()
    request = node.last("run_request")           # it may have been lost on its way: the node's own record decides
    assert (request.run_id, request.attempt) == (record.run_id, 1)
    node.send("run_rejected", RunRejected(run_id=record.run_id, attempt=1, code="node_restarted", message="had it"))
    assert again.run(record.run_id).outcome_code == "node_restarted"


@pytest.mark.parametrize("first", ["n1", "n2"])
def test_what_history_has_as_queued_but_a_node_carries_out_is_that_nodes(make_edge: Any, first: str) -> None:
    edge = make_edge(entry("n1"), entry("n2"))
    record = edge.submit()
    kept = copy.deepcopy(edge.history.kept)
    node = edge.node()
    request = node.accept()
    node.emit(request, 1, started("mock", "echo"), output("a"))
    again = set_back(edge, kept)
    other = again.node("n2") if first == "n2" else None
    node = again.node(reports=[report(request, 3, first=3)])
    assert verdicts(node)[request.run_id] == (VERDICT_CONTINUE, 2)
    assert not (other or again.node("n2")).all("run_request")
    node.emit(request, 3, output("b"), OK)
    assert seen(again, request.run_id) == ["gap 1+2=1.2", "b", "completed"]
    assert (again.run(record.run_id).state, again.run(record.run_id).node_id) == ("completed", "n1")
    assert again.service.node("n1").running == 0


def test_what_was_queued_does_not_wait_long_for_a_node_that_stays_away(make_edge: Any) -> None:
    edge = make_edge(entry("n1"), entry("n2"))
    record = edge.submit()
    again = set_back(edge, copy.deepcopy(edge.history.kept))
    other = again.node("n2")
    assert not other.all("run_request")
    again.clock.advance(REPORTED_S)
    assert other.last("run_request").run_id == record.run_id


def test_a_run_that_history_forgot_is_stopped_and_what_is_let_go_is_told(edge: FakeEdge) -> None:
    node = edge.node()
    kept = copy.deepcopy(edge.history.kept)
    request = running(edge, node, "a")
    again = set_back(edge, kept)
    node = again.node(reports=[report(request, 5, first=3)])
    assert verdicts(node)[request.run_id][0] == VERDICT_UNKNOWN
    told = [event for event in again.history.kept.events if event.kind == "run_unknown"]
    assert [(event.node_id, event.run_id) for event in told] == [("n1", request.run_id)]
    assert b'"events_let_go":3' in told[0].detail


def test_a_node_whose_spool_was_set_back_gives_numbers_twice_and_its_run_ends(edge: FakeEdge) -> None:
    node = edge.node()
    request = running(edge, node, "a", "b", "c")
    node.pair.cut()
    node = edge.node(reports=[report(request, 2, first=2)], instance="2")
    assert verdicts(node)[request.run_id][0] == VERDICT_FENCED
    assert edge.run(request.run_id).outcome_code == "spool_corrupt"


def test_an_ending_under_a_number_that_is_taken_does_not_leave_a_run_open_for_ever(edge: FakeEdge) -> None:
    node = edge.node()
    request = running(edge, node, "a", "b", "c")
    node.pair.cut()
    edge.node(reports=[report(request, 3, first=2, open_=False)], instance="2")
    assert edge.run(request.run_id).outcome_code == "node_restarted"


def test_a_page_of_history_with_a_hole_that_nobody_announced_is_told_as_a_gap(edge: FakeEdge) -> None:
    node = edge.node()
    request = running(edge, node, "a", "b", "c")
    node.emit(request, 5, OK)
    rows = edge.history.kept.batches[request.run_id]
    lost = [row for row in rows if unpack(row.packed).first_seq in (2, 3)]
    for row in lost:
        rows.remove(row)
    assert seen(edge, request.run_id) == ["started", "gap 2+2=1.3", "c", "completed"]
    assert seen(edge, request.run_id, EventId(1, 2)) == ["gap 3+1=1.3", "c", "completed"]


def test_a_live_reader_behind_what_history_lost_gets_a_gap_and_not_a_standstill(make_edge: Any) -> None:
    edge = make_edge(entry("n1"), tail_bytes=1000)
    node = edge.node()
    request = running(edge, node, *"abcdef")
    run = edge.service._runs.get(request.run_id)
    assert run.log.floor > EventId(1, 3)
    edge.history.kept.batches[request.run_id].clear()
    told = seen(edge, request.run_id)
    assert told[0] == f"gap 1+{run.log.floor.seq}={run.log.floor}"
    assert told[-1] == "f"


@pytest.mark.parametrize(("first", "last", "open_", "stands"), [
    (1, 0, True, Standing.CONFLICT), (3, 2, True, Standing.CONFLICT), (3, 3, True, Standing.GOES_ON),
    (4, 5, True, Standing.GOES_ON), (5, 5, True, Standing.GAP), (6, 5, True, Standing.GAP), (5, 5, False, Standing.GAP),
    (6, 5, False, Standing.LOST), (4, 3, False, Standing.LOST), (4, 4, False, Standing.GOES_ON)])
def test_how_a_run_stands(edge: FakeEdge, first: int, last: int, open_: bool, stands: Standing) -> None:
    request = running(edge, edge.node(), "a", "b")
    run = edge.service._runs.get(request.run_id)
    assert standing(run, report(request, last, first=first, open_=open_)) is stands
    assert standing(run, None) is Standing.LOST


def test_a_rolled_back_run_that_was_to_be_cancelled_still_is(edge: FakeEdge) -> None:
    again, request = rolled_back(edge)
    again.cancel(request.run_id)
    node = again.node(reports=[report(request, 6, first=5)], told=status())
    node.emit(request, 5, ending("cancelled", Outcome(code="cancelled")))
    assert seen(again, request.run_id) == ["started", "a", "gap 3+2=1.4", "cancelled"]


def test_what_was_lost_is_found_by_verifying(edge: FakeEdge) -> None:
    again, request = rolled_back(edge)
    node = again.node(reports=[report(request, 6, first=5)])
    node.emit(request, 5, output("d"), output("e"), ending("completed", Outcome(code="ok", totals=Totals(events=6, bytes=5))))
    found = result_of(again.service.verify(request.run_id)).as_dict()
    assert (found["whole"], found["events"], found["told"]["events"], found["faults"]) == (False, 4, 6, [])
    assert found["gaps"] == [{"first": "1.3", "last": "1.4", "missing": 2}]


def test_a_verification_waits_for_the_last_commit_of_its_run(edge: FakeEdge) -> None:
    node = edge.node()
    record = edge.submit()
    edge.history.held = True
    node.play(node.accept(), "a")
    found: list[Any] = []
    edge.service.verify(record.run_id).addBoth(found.append)
    assert not found
    for _ in range(5):
        edge.history.commit()
    assert found[0].whole and found[0].checked == "numbers"


def test_a_verification_says_so_when_what_it_is_about_cannot_be_stored(edge: FakeEdge) -> None:
    node = edge.node()
    record = edge.submit()
    edge.history.trouble = "the disk is full"
    node.play(node.accept(), "a")
    found: list[Any] = []
    edge.service.verify(record.run_id).addErrback(found.append)
    edge.clock.advance(10)
    assert found[0].value.code == "history_unavailable"
    edge.history.trouble = ""
    edge.clock.advance(1)
    assert result_of(edge.service.verify(record.run_id)).whole
    with pytest.raises(NoSuchRun):
        result_of(edge.service.verify("f" * 32))
