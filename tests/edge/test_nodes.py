from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from zope.interface.verify import verifyObject

from iop.config import LimitsConfig
from iop.edge.packing import unpack
from iop.edge.reports import Ended, judge
from iop.errors import AuthFailed, NoSuchTarget
from iop.events import ending, output
from iop.interfaces import IGreeter, ILinkHandler
from iop.keys import KeyRing, make_key
from iop.link.limits import default_limits
from iop.proto.link_pb2 import (
    VERDICT_CANCEL,
    VERDICT_CONTINUE,
    VERDICT_FENCED,
    VERDICT_UNKNOWN,
    Hello,
    RunReport,
)
from iop.proto.node_pb2 import AdapterConfig, ConfigApplied, ConfigFault, ConfigPartApplied, NodeStatus, TargetConfig
from iop.proto.run_pb2 import EventBatch, Outcome, RunRejected
from iop.records import RunRecord
from iop.runs import START
from tests.edge.conftest import (
    PERSON,
    FakeEdge,
    edge_config,
    entry,
    prompt,
    report,
    result_of,
    running,
    status,
    texts,
    verdicts,
)


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


def test_the_whole_configuration_carries_the_edges_defaults(make_edge: Any) -> None:
    edge = make_edge(entry("n1", zone="a"))
    edge.service.reload(edge_config(entry("n1", zone="a")).__class__(**{
        **{name: getattr(edge.service._config, name) for name in edge.service._config.__struct_fields__},
        "limits": LimitsConfig(run_s=60)}), edge.service.keyring)
    payload = edge.node(ready=False).last("node_config_payload")
    assert payload.adapters[0].targets[0].limits.run_s == 60 and dict(payload.labels) == {"zone": "a"}


def test_faults_of_a_configuration_are_shown_and_explain_a_missing_target(edge: FakeEdge) -> None:
    node = edge.node()
    fault = ConfigFault(path="adapters/cli/targets/fix/argv", code="policy_denied", reason="sh is not allowed here.")
    node.send("config_applied", ConfigApplied(revision=2, parts=[
        ConfigPartApplied(path="adapters/cli", accepted=True, faults=[fault])]))
    assert edge.service.node("n1").config_faults == ["adapters/cli/targets/fix/argv: sh is not allowed here."]
    assert edge.kinds()[-1] == "config_rejected"
    with pytest.raises(Exception, match="sh is not allowed here"):
        edge.submit(prompt("fix", adapter="cli"))
    node.send("config_applied", ConfigApplied(revision=3, parts=[ConfigPartApplied(path="adapters/cli", accepted=True)]))
    assert edge.service.node("n1").config_faults == []


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


def test_a_cancel_is_answered_once_it_is_stored(edge: FakeEdge) -> None:
    request = running(edge, node := edge.node())
    edge.history.held = True
    answered = edge.service.cancel(request.run_id, PERSON)
    edge.history.commit()            # the audit line
    node.pair.pump()
    assert node.last("cancel_request").run_id == request.run_id and not answered.called
    edge.history.commit()
    assert answered.called


def test_a_run_that_must_go_to_one_node_still_must_after_a_restart(make_edge: Any) -> None:
    edge = make_edge(entry("n1"), entry("n2"))
    edge.node("n1"), edge.node("n2")
    record = edge.submit(prompt("n2/mock/echo", retry_safe=True))
    again = edge.restarted()
    free = again.node("n1")
    assert again.node("n2").last("run_request").run_id == record.run_id
    assert free.all("run_request") == []


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


def test_a_reload_sends_only_what_changed_and_leaves_work_alone(edge: FakeEdge) -> None:
    node = edge.node()
    request = running(edge, node, "a")
    sent = len(node.all("node_config_payload"))
    edge.service.reload(edge_config(entry("n1")), edge.service.keyring)
    assert len(node.all("node_config_payload")) == sent
    changed = entry("n1", zone="b")
    changed.adapters.append(AdapterConfig(adapter="cli", targets=[TargetConfig(name="fix")]))
    edge.service.reload(edge_config(changed), edge.service.keyring)
    payload = node.last("node_config_payload")
    assert (payload.whole, [one.adapter for one in payload.adapters]) == (False, ["cli"])
    assert dict(payload.labels) == {"zone": "b"}
    edge.service.reload(edge_config(entry("n1")), edge.service.keyring)
    assert list(node.last("node_config_payload").removed_adapters) == ["cli"]
    node.emit(request, 3, ending("completed", Outcome(code="ok")))
    assert edge.run(request.run_id).state == "completed"


def test_a_node_that_is_gone_from_the_configuration_is_forgotten_once_nothing_is_left_of_it(make_edge: Any) -> None:
    edge = make_edge(entry("n1"), entry("ghost", "boo"), entry("busy", "work"), entry("kept", "some"))
    busy = edge.node("busy", told=status("work"))
    request = running(edge, busy, target="work")
    busy.pair.cut()
    edge.node("kept", told=status("some"))
    edge.service.reload(edge_config(entry("n1")), edge.service.keyring)
    assert [node.node_id for node in edge.service.nodes()] == ["busy", "kept", "n1"]
    with pytest.raises(NoSuchTarget):
        edge.submit(prompt("boo"))
    busy = edge.node("busy", reports=[report(request, 1, first=2)])
    busy.emit(request, 2, ending("completed", Outcome(code="ok")))
    busy.pair.cut()
    edge.service.reload(edge_config(entry("n1")), edge.service.keyring)
    assert [node.node_id for node in edge.service.nodes()] == ["kept", "n1"]


def test_a_node_that_is_forgotten_while_it_is_greeted_is_known_all_the_same(make_edge: Any) -> None:
    edge = make_edge(entry("n1"), entry("late"))
    handler = edge.handler_for(Hello(peer_id="late"))
    edge.service.reload(edge_config(entry("n1")), edge.service.keyring)
    handler.link_up(SimpleNamespace(remote="memory", epoch=1, limits=default_limits()))
    assert edge.service.node("late").state == "up"


def test_a_key_that_is_taken_away_closes_its_link(edge: FakeEdge) -> None:
    node = edge.node()
    edge.service.reload(edge_config(entry("n1")), KeyRing([]))
    node.pair.pump()
    assert "auth_failed" in str(node.down)


def test_a_key_that_comes_to_its_end_closes_its_link(edge: FakeEdge) -> None:
    node = edge.node()
    edge.service.keyring = KeyRing([])
    edge.clock.advance(1)
    node.pair.pump()
    assert node.down is not None


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
