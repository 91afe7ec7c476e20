from __future__ import annotations

from typing import Any

import pytest
from zope.interface.verify import verifyObject

from iop.edge.packing import unpack
from iop.edge.reports import Ended, judge
from iop.errors import AuthFailed
from iop.events import ending, output
from iop.interfaces import IGreeter, ILinkHandler
from iop.keys import KeyRing, make_key
from iop.proto.link_pb2 import VERDICT_CANCEL, VERDICT_CONTINUE, VERDICT_FENCED, VERDICT_UNKNOWN, Hello, RunReport
from iop.proto.node_pb2 import NodeStatus
from iop.proto.run_pb2 import EventBatch, Outcome, RunRejected
from iop.records import RunRecord
from iop.runs import START
from tests.edge.conftest import PERSON, FakeEdge, entry, prompt, report, result_of, running, status, texts, verdicts


def test_the_greeter_lets_in_only_the_owner_of_a_token(edge: FakeEdge) -> None:
    key, token = make_key("node", "n1")
    edge.service.keyring = KeyRing([key])
    greeter = edge.service.greeter
    assert verifyObject(IGreeter, greeter)
    assert verifyObject(ILinkHandler, result_of(greeter.greet(Hello(peer_id="n1", token=token), "x")))
    for hello in (Hello(peer_id="n1", token="wrong"), Hello(peer_id="n1"), Hello(peer_id="n2", token=token)):
        with pytest.raises(AuthFailed):
            result_of(greeter.greet(hello, "10.0.0.9:1"))
    (source, action, detail), = edge.history.kept.audits
    assert (source.principal, action, detail["claimed"]) == ("n1", "node_refused", "n2")
    assert token not in str(detail)


def test_a_node_is_placeable_only_after_its_first_status(edge: FakeEdge) -> None:
    node = edge.node(ready=False)
    assert [kind for kind, _ in node.got] == ["verdicts", "node_config_payload"]
    assert node.last("node_config_payload").whole
    assert edge.service.node("n1").state == "up"
    assert edge.submit().state == "queued"
    node.ready()
    assert node.last("run_request")
    assert edge.kinds()[:3] == ["edge_started", "node_up", "run_queued"]


def test_a_run_goes_on_when_its_node_comes_back_in_time(edge: FakeEdge) -> None:
    node = edge.node()
    request = running(edge, node, "a")
    node.pair.cut()
    assert edge.run(request.run_id).state == "disconnected"
    assert edge.service.node("n1").state == "down"
    edge.clock.advance(100)
    node = edge.node(reports=[report(request, 4, first=3)])
    assert verdicts(node) == {request.run_id: (VERDICT_CONTINUE, 2)}
    assert edge.run(request.run_id).state == "running"
    node.emit(request, 3, output("b"), output("c"))
    edge.clock.advance(10_000 - 9990)
    cursor = result_of(edge.service.cursor(request.run_id, START))
    assert texts(cursor.take(1 << 20)) == ["a", "b", "c"]


def test_late_events_that_come_again_cut_in_another_way_are_kept_once(edge: FakeEdge) -> None:
    node = edge.node()
    request = running(edge, node, "a")
    node.pair.cut()
    edge.clock.advance(601)
    for again in ((3, "b"), (3, "b", "c"), (3, "b", "c"), (4, "c", "d"), (3, "b", "c", "d"), (6, "e")):
        node = edge.node(reports=[report(request, 6, first=3)])
        node.emit(request, again[0], *map(output, again[1:]))
        assert node.last("event_ack").through_seq == again[0] + len(again) - 2
        node.pair.cut()
    kept = [event.output for _, packed in sorted(edge.history.kept.late.items())
            for event in unpack(packed).events]
    assert kept == ["b", "c", "d", "e"]


def test_a_node_that_stays_away_loses_its_runs_and_what_it_still_sends_is_kept_apart(edge: FakeEdge) -> None:
    node = edge.node()
    request = running(edge, node, "a")
    node.pair.cut()
    edge.clock.advance(601)
    lost = edge.run(request.run_id)
    assert (lost.state, lost.outcome_code, lost.attempt) == ("failed", "node_lost", 2)
    node = edge.node(reports=[report(request, 3, first=3)])
    assert verdicts(node) == {request.run_id: (VERDICT_FENCED, 2)}
    node.emit(request, 3, output("late"))
    assert list(edge.history.kept.late) == [(request.run_id, 1, 3)]
    assert node.last("event_ack").through_seq == 3
    assert edge.run(request.run_id).outcome_code == "node_lost"
    assert edge.kinds().count("run_ended") == 1
    cursor = result_of(edge.service.cursor(request.run_id, START))
    assert texts(result_of(cursor.take(1 << 20))) == ["a"]


def test_a_run_that_its_node_does_not_know_ends_once_as_node_restarted(edge: FakeEdge) -> None:
    node = edge.node()
    request = running(edge, node, "a")
    node.pair.cut()
    node = edge.node(instance="2")
    ended = edge.run(request.run_id)
    assert (ended.state, ended.outcome_code, ended.attempt) == ("failed", "node_restarted", 2)
    assert edge.service.node("n1").running == 0


def test_a_run_that_is_over_at_its_node_but_for_its_ending_continues(edge: FakeEdge) -> None:
    node = edge.node()
    request = running(edge, node, "a")
    node.pair.cut()
    node = edge.node(reports=[report(request, 3, first=3, open_=False)])
    assert verdicts(node)[request.run_id] == (VERDICT_CONTINUE, 2)
    node.emit(request, 3, ending("failed", Outcome(code="node_restarted")))
    assert edge.run(request.run_id).attempt == 1
    assert edge.kinds().count("run_ended") == 1


def of_target(retry_safe: bool) -> NodeStatus:
    told = status()
    told.adapters[0].targets[0].retry_safe = retry_safe
    return told


@pytest.mark.parametrize(("target", "run", "again"), [
    (False, None, False), (True, None, True), (False, True, True), (True, False, False)])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_run_that_showed_nothing_is_placed_again_where_it_or_else_its_target_says_that_this_is_safe(
        edge: FakeEdge, target: bool, run: bool | None, again: bool, restarted: bool) -> None:
    node = edge.node(told=of_target(target))
    record = edge.submit(prompt() if run is None else prompt(retry_safe=run))
    node.pair.cut()
    edge = edge.restarted() if restarted else edge
    node = edge.node(told=of_target(target))
    assert (node.last("run_request").run_id, node.last("run_request").attempt) == (record.run_id, 1)
    node.send("run_rejected", RunRejected(run_id=record.run_id, attempt=1, code="node_restarted", retryable=True))
    if not again:
        assert edge.run(record.run_id).outcome_code == "node_restarted"
        return
    assert node.last("run_request").attempt == 2
    node.play(node.accept(), "x")
    assert edge.run(record.run_id).state == "completed"


@pytest.mark.parametrize("restarted", [False, True])
def test_a_request_that_was_lost_on_its_way_is_sent_again_behind_the_configuration(edge: FakeEdge, restarted: bool) -> None:
    node = edge.node()
    record = edge.submit()
    node.pair.cut()
    edge = edge.restarted() if restarted else edge
    node = edge.node()
    assert [kind for kind, _ in node.got if kind in ("node_config_payload", "run_request")] == [
        "node_config_payload", "run_request"]
    request = node.accept()
    assert (request.run_id, request.attempt, edge.run(record.run_id).state) == (record.run_id, 1, "placed")
    node.play(request, "x")
    assert (edge.run(record.run_id).state, edge.run(record.run_id).attempt) == ("completed", 1)


def test_a_cancel_while_the_node_is_away_is_its_verdict(edge: FakeEdge) -> None:
    node = edge.node()
    request = running(edge, node)
    node.pair.cut()
    assert edge.cancel(request.run_id).state == "disconnected"
    node = edge.node(reports=[report(request, 1, first=2)])
    assert verdicts(node)[request.run_id] == (VERDICT_CANCEL, 1)


def test_a_cancel_is_answered_once_it_is_stored(edge: FakeEdge) -> None:
    request = running(edge, node := edge.node())
    edge.history.held = True
    answered = edge.service.cancel(request.run_id, PERSON)
    edge.history.commit()            # the audit line
    node.pair.pump()
    assert node.last("cancel_request").run_id == request.run_id and not answered.called
    edge.history.commit()
    assert answered.called


def test_events_of_somebody_elses_run_end_the_link(make_edge: Any) -> None:
    edge = make_edge(entry("n1"), entry("n2", "other"))
    node, thief = edge.node("n1"), edge.node("n2", told=status("other"))
    request = running(edge, node, "a")
    thief.emit(request, 3, output("mine"))
    assert thief.down is not None and "protocol_violation" in str(thief.down)
    assert edge.service.node("n1").state == "up"
    assert edge.history.kept.late == {}
    stranger = edge.node("n2", told=status("other"))
    stranger.send("event_batch", EventBatch(run_id="f" * 32, attempt=1, first_seq=1, events=[output("x")]))
    assert stranger.down is not None


def test_a_repeat_of_what_ended_long_ago_is_acknowledged_and_kept_once(edge: FakeEdge) -> None:
    node = edge.node()
    edge.submit()
    request = node.accept()
    node.play(request, "x")
    node.emit(request, 2, output("x"))
    assert edge.history.kept.late == {}
    assert node.last("event_ack").through_seq == 2
    node.emit(request, 4, output("after the end"))
    assert list(edge.history.kept.late) == [(request.run_id, 1, 4)]
    assert node.last("verdicts").runs[0].verdict == VERDICT_FENCED


def test_verdicts_on_runs_that_are_not_live() -> None:
    record = RunRecord(run_id="a" * 32, state="completed", adapter="mock", target="echo", node_id="n1", attempt=1)
    said = RunReport(run_id=record.run_id, attempt=1, last_spooled=5)
    assert judge("n1", said, None, None).verdict == VERDICT_UNKNOWN
    assert judge("n2", said, None, Ended(record, 5)).verdict == VERDICT_UNKNOWN
    over = judge("n1", said, None, Ended(record, 5))
    assert (over.verdict, over.committed_seq) == (VERDICT_CONTINUE, 5)
    record.attempt = 2
    assert judge("n1", said, None, Ended(record, 4)).verdict == VERDICT_FENCED
    said.attempt = 3
    assert judge("n1", said, None, Ended(record, 4)).verdict == VERDICT_UNKNOWN


def test_frames_of_a_superseded_link_do_nothing(edge: FakeEdge) -> None:
    old = edge.node()
    request = running(edge, old)
    handler = edge.service._registry.node("n1").handler
    link = edge.service._registry.node("n1").link
    old.pair.cut()
    edge.node(reports=[report(request, 1)])
    handler.frame_received(link, "event_batch", EventBatch(run_id=request.run_id, attempt=1, first_seq=2,
                                                          events=[output("limbo")]), b"")
    handler.link_down(link, None)
    assert edge.service.node("n1").state == "up"
    assert edge.service._runs.get(request.run_id).log.last.seq == 1


def test_the_source_of_a_run_travels(edge: FakeEdge) -> None:
    node = edge.node()
    record = edge.submit()
    assert node.last("run_request").source == PERSON
    assert (record.face, record.principal, record.request_id) == ("http", "anna", "r1")
