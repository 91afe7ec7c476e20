from __future__ import annotations

from typing import Any

import pytest
from zope.interface.verify import verifyObject

from iop.config import QueueConfig
from iop.edge import acks, dispatch, runs, submit
from iop.edge.packing import unpack
from iop.errors import (
    Conflict,
    Draining,
    HistoryUnavailable,
    InvalidRequest,
    NoSuchNode,
    NoSuchRun,
    NoSuchTarget,
    QueueFull,
)
from iop.events import ending, now_us, output, started
from iop.interfaces import IEdgeService
from iop.link.errors import LinkDown
from iop.proto.link_pb2 import VERDICT_CANCEL, RunReport
from iop.proto.node_pb2 import NodeCommandResponse
from iop.proto.run_pb2 import Limits, Outcome, RunRejected, RunRequest
from iop.records import BatchRow, RunQuery
from iop.runs import START, EventId
from tests.edge.conftest import PERSON, FakeEdge, entry, prompt, result_of, status, texts


def test_the_service_is_what_it_claims(edge: FakeEdge) -> None:
    assert verifyObject(IEdgeService, edge.service)


def test_a_run_goes_to_its_node_and_comes_back_whole(edge: FakeEdge) -> None:
    node = edge.node()
    record = edge.submit()
    assert (record.state, record.node_id, record.attempt) == ("placed", "n1", 1)
    request = node.accept()
    assert (request.run_id, request.attempt, request.prompt) == (record.run_id, 1, "hello")
    cursor = result_of(edge.service.cursor(record.run_id, START))
    node.play(request, "Hel", "lo")
    assert texts(cursor.take(1 << 20)) == ["Hel", "lo"] and cursor.ended
    done = edge.run(record.run_id)
    assert (done.state, done.outcome_code, done.output_text, done.prompt_text) == ("completed", "ok", "Hello", "hello")
    assert done.started_us and done.ended_us
    assert edge.history.kept.runs[record.run_id].state == "completed"
    edge.clock.advance(acks.PACE_S)
    assert [ack.through_seq for ack in node.all("event_ack")] == [1, 4]
    assert edge.service.node("n1").running == 0
    for kind in ("run_placed", "run_started", "run_ended"):
        assert edge.kinds().count(kind) == 1


def test_placed_is_stored_before_the_request_is_sent(edge: FakeEdge) -> None:
    node = edge.node()
    edge.history.held = True
    accepted = edge.service.submit(prompt(), PERSON)
    assert not node.all("run_request")
    assert edge.history.backlog() == 1, "a submit costs one commit"
    edge.history.commit()
    assert node.last("run_request").run_id == result_of(accepted).run_id
    assert edge.history.kept.runs[node.last("run_request").run_id].state == "placed"


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


def test_new_runs_are_refused_while_history_cannot_be_written_and_leave_nothing(edge: FakeEdge) -> None:
    edge.node()
    edge.history.trouble = "the disk is full"
    with pytest.raises(HistoryUnavailable):
        edge.submit()
    assert edge.service.node("n1").running == 0
    edge.history.trouble = ""
    assert edge.submit().state == "placed"


@pytest.mark.parametrize("request_, reason", [
    (RunRequest(adapter="mock", target="echo"), "exactly one input"),
    (prompt(labels={"a b": "c"}), "label"),
    (prompt(limits=Limits(run_s=-1)), "limits.run_s"),
    (prompt(limits=Limits(queue_s=float("nan"))), "limits.queue_s"),
    (prompt(priority=5000), "priority"),
    (prompt(session_id="../x"), "session_id"),
    (RunRequest(adapter="mock", prompt="x"), "by their names"),
])
def test_a_request_that_cannot_be_understood_names_the_field(edge: FakeEdge, request_: RunRequest, reason: str) -> None:
    edge.node()
    with pytest.raises(InvalidRequest, match=reason):
        edge.submit(request_)


def test_an_unknown_target_is_refused_and_a_pinned_one_goes_to_its_node(make_edge: Any) -> None:
    edge = make_edge(entry("n1"), entry("n2"))
    with pytest.raises(NoSuchTarget):
        edge.submit(prompt("nothing"))
    edge.node("n1")
    node = edge.node("n2")
    assert edge.submit(prompt("n2/mock/echo")).node_id == "n2"
    assert node.last("run_request").target == "echo"
    with pytest.raises(NoSuchTarget):
        edge.submit(prompt("n9/mock/echo"))
    assert edge.service.resolve("echo-alias") == ("mock", "echo", "")
    assert edge.service.resolve("mock/echo") == ("mock", "echo", "")
    assert edge.service.resolve("n2/mock/echo") == ("mock", "echo", "n2")
    assert {model.name for model in edge.service.models()} == {"echo", "echo-alias"}


def test_an_idempotency_key_starts_one_run(edge: FakeEdge) -> None:
    node = edge.node()
    first, second = edge.submit(key="k"), edge.submit(key="k")
    assert first.run_id == second.run_id and len(node.all("run_request")) == 1
    assert edge.service.node("n1").running == 1


@pytest.mark.parametrize("other", [
    {"text": "something else"}, {"target": "other"}, {"labels": {"a": "b"}}, {"limits": Limits(run_s=5)}, {"priority": 1}])
@pytest.mark.parametrize("ended", [False, True])
def test_an_idempotency_key_of_another_request_is_refused(make_edge: Any, other: dict[str, Any], ended: bool) -> None:
    edge = make_edge(entry("n1", "echo", "other"))
    node = edge.node(told=status("echo", "other"))
    edge.submit(key="k")
    if ended:
        node.play(node.accept(), "x")
    with pytest.raises(Conflict):
        edge.submit(prompt(**other), key="k")
    assert len(node.all("run_request")) == 1 and edge.service.node("n1").running == (not ended)


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


def test_a_session_stays_on_its_node_until_it_is_closed(make_edge: Any) -> None:
    edge = make_edge(entry("n1"), entry("n2"))
    nodes = {name: edge.node(name) for name in ("n1", "n2")}
    first = edge.submit(prompt(session_id="s"))
    nodes[first.node_id].play(nodes[first.node_id].accept(), "x")
    edge.submit(prompt())
    for _ in range(2):
        assert edge.submit(prompt(session_id="s")).node_id in (first.node_id, "")
    (session,) = result_of(edge.service.sessions())
    assert session.node_id == first.node_id and session.runs >= 2
    with pytest.raises(Conflict, match="belongs to"):
        edge.submit(prompt("other", session_id="s") if False else _other(edge, "s"))
    assert result_of(edge.service.close_session("s", PERSON)).closed_us
    with pytest.raises(Conflict, match="is closed"):
        edge.submit(prompt(session_id="s"))


def _other(edge: FakeEdge, session_id: str) -> RunRequest:
    edge.node("n3", told=status("other"))
    return prompt("other", session_id=session_id)


def test_labels_reach_the_node_and_placement(edge: FakeEdge) -> None:
    node = edge.node()
    record = edge.submit(prompt(labels={"gpu": "yes"}))
    assert record.state == "queued"
    view = result_of(edge.service.label("n1", {"gpu": "yes"}, PERSON))
    assert view.labels == {"gpu": "yes"}
    assert dict(node.last("node_config_payload").labels) == {"gpu": "yes"}
    assert not node.last("node_config_payload").whole
    assert edge.run(record.run_id).state == "placed"
    assert result_of(edge.service.label("n1", {"gpu": None}, PERSON)).labels == {}


def test_a_draining_node_gets_no_new_runs(edge: FakeEdge) -> None:
    edge.node()
    assert result_of(edge.service.drain("n1", True, PERSON)).draining
    record = edge.submit()
    assert record.state == "queued"
    result_of(edge.service.drain("n1", False, PERSON))
    assert edge.run(record.run_id).state == "placed"


def test_a_command_is_answered_by_its_node(edge: FakeEdge) -> None:
    node = edge.node()
    answer = edge.service.command("n1", "status", PERSON)
    asked = node.last("node_command_request")
    node.send("node_command_response", NodeCommandResponse(command_id=asked.command_id, ok=True, result=b"{}"))
    assert result_of(answer).ok
    waiting = edge.service.command("n1", "status", PERSON)
    node.pair.cut()
    with pytest.raises(LinkDown):
        result_of(waiting)
    with pytest.raises(LinkDown):
        result_of(edge.service.command("n1", "status", PERSON))
    with pytest.raises(NoSuchNode):
        result_of(edge.service.command("n9", "status", PERSON))


def test_input_reaches_the_running_program_only(edge: FakeEdge) -> None:
    record = edge.submit()
    with pytest.raises(Conflict):
        result_of(edge.service.give_input(record.run_id, b"x", False, PERSON))
    node = edge.node()
    node.accept()
    result_of(edge.service.give_input(record.run_id, b"x", True, PERSON))
    assert (node.last("run_input").data, node.last("run_input").end) == (b"x", True)


def test_lifecycle_events_have_durable_ids_and_are_told_in_order(edge: FakeEdge) -> None:
    told: list[Any] = []
    end = edge.service.watch(told.append)
    edge.node()
    edge.submit()
    ids = [event.event_id for event in told]
    assert ids == sorted(set(ids)) and len(ids) > 3
    end()
    seen = len(told)
    edge.submit()
    assert len(told) == seen
    after = result_of(edge.service.events(ids[1], 100))
    assert [event.event_id for event in after][:2] == ids[2:4]
    placed = next(event for event in told if event.kind == "run_placed")
    assert (placed.source.principal, placed.node_id) == ("anna", "n1")


def test_runs_are_listed_as_they_are_now(edge: FakeEdge) -> None:
    node = edge.node()
    edge.submit()
    node.emit(node.accept(), 1, started("mock", "echo"))
    records, following = result_of(edge.service.runs(RunQuery()))
    assert [record.state for record in records] == ["running"] and following == ""


@pytest.mark.parametrize("after", [-1, 2 ** 63])
def test_a_place_that_no_lifecycle_event_has_is_refused(edge: FakeEdge, after: int) -> None:
    with pytest.raises(InvalidRequest):
        result_of(edge.service.events(after, 1))


@pytest.mark.parametrize("whose", ["operator", "node"])
def test_a_model_of_draining_nodes_only_is_not_ready(edge: FakeEdge, whose: str) -> None:
    node = edge.node()
    assert all(model.ready for model in edge.service.models())
    if whose == "node":
        node.send("node_status", status(draining=True))
    else:
        result_of(edge.service.drain("n1", True, PERSON))
    assert not any(model.ready for model in edge.service.models())


def test_labels_cannot_grow_without_bound_and_removed_ones_make_room(make_edge: Any) -> None:
    edge = make_edge(entry("n1", room="lab"))
    edge.node()
    for start in range(0, 600, 60):
        names = [f"k{number}" for number in range(start, start + 60)]
        result_of(edge.service.label("n1", dict.fromkeys(names, "x"), PERSON))
        with pytest.raises(InvalidRequest):
            result_of(edge.service.label("n1", {f"more{number}": "x" for number in range(10)}, PERSON))
        result_of(edge.service.label("n1", dict.fromkeys(names), PERSON))
    assert edge.service.node("n1").labels == {"room": "lab"}
    assert result_of(edge.service.label("n1", {"room": None}, PERSON)).labels == {}


def test_a_stopping_edge_takes_nothing(edge: FakeEdge) -> None:
    edge.node()
    edge.service.stop()
    with pytest.raises(Draining):
        edge.submit()
    assert not edge.service.health()["ready"]


def test_a_submitter_that_goes_away_leaves_no_run_behind(edge: FakeEdge) -> None:
    node = edge.node()
    edge.history.held = True
    asked = edge.service.submit(prompt(), PERSON)
    asked.addErrback(lambda _: None)
    asked.cancel()
    edge.history.held = False
    edge.history.commit()
    assert node.last("cancel_request").run_id == node.last("run_request").run_id


@pytest.mark.parametrize("phase", ["placing", "queued", "running"])
def test_a_run_whose_client_has_left_is_stopped_at_once_also_while_history_is_away(edge: FakeEdge, phase: str) -> None:
    node = edge.node(told=status(concurrency=1))
    record = edge.submit()
    if phase == "queued":
        record = edge.submit()
    elif phase == "running":
        node.emit(node.accept(), 1, started("mock", "echo"))
    edge.history.trouble = "the disk is full"
    edge.service.abandon(record.run_id, PERSON, "client disconnected")
    if phase == "queued":
        assert edge.run(record.run_id).state == "cancelled"
    else:
        assert [(word.run_id, word.reason) for word in node.all("cancel_request")] == [(record.run_id, "client disconnected")]
    edge.service.abandon("f" * 32, PERSON, "client disconnected")
    edge.history.trouble = ""
    edge.clock.advance(1)
    edge.service.abandon(record.run_id, PERSON, "client disconnected")
    assert not edge.history.kept.audits


@pytest.mark.parametrize("phase", ["queued", "running"])
def test_an_edge_that_starts_again_stops_the_runs_whose_clients_it_cut_off(edge: FakeEdge, phase: str) -> None:
    node = edge.node(told=status(concurrency=1))
    if phase == "queued":
        edge.submit()
    chat, later = edge.submit(prompt(detach_s=0)), edge.submit(prompt(detach_s=60))
    others = [edge.submit()]
    if phase == "running":
        node.emit(node.accept(), 1, started("mock", "echo"))
    again = edge.restarted()
    again.clock.advance(0)
    if phase == "running":
        report = RunReport(run_id=chat.run_id, attempt=1, first_unacked=2, last_spooled=1, open=True)
        node = again.node(reports=[report], told=status(concurrency=1))
        assert [word.verdict for page in node.all("verdicts") for word in page.runs] == [VERDICT_CANCEL]
    else:
        assert again.run(chat.run_id).state == "cancelled"
    assert again.run(later.run_id).state == "queued"
    again.clock.advance(60)
    assert again.run(later.run_id).state == "cancelled"
    assert all(again.run(other.run_id).state != "cancelled" for other in others)


def test_an_edge_that_stops_says_that_it_is_why_its_clients_left(edge: FakeEdge) -> None:
    node = edge.node()
    record = edge.submit()
    edge.service.stop_intake()
    edge.service.abandon(record.run_id, PERSON, "client disconnected")
    assert node.last("cancel_request").reason == "The edge is stopping."


def test_a_cursor_on_an_unknown_run_says_so(edge: FakeEdge) -> None:
    with pytest.raises(NoSuchRun):
        result_of(edge.service.cursor("f" * 32, EventId(0, 0)))


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


def test_a_run_ends_when_the_last_of_its_clients_has_left(edge: FakeEdge) -> None:
    node = edge.node()
    record = edge.submit(key="k")
    assert edge.submit(key="k").run_id == record.run_id
    node.accept()
    for _ in range(2):
        edge.service.attend(record.run_id)
    edge.service.abandon(record.run_id, PERSON, "client disconnected")
    assert not node.all("cancel_request")
    edge.service.abandon(record.run_id, PERSON, "client disconnected")
    assert node.last("cancel_request").run_id == record.run_id


def test_a_client_that_comes_again_after_a_restart_of_the_edge_keeps_its_run(edge: FakeEdge) -> None:
    left, kept = edge.submit(prompt(detach_s=60), "k1"), edge.submit(prompt(detach_s=60), "k2")
    again = edge.restarted()
    again.service.attend(again.submit(prompt(), "k2").run_id)
    again.clock.advance(60)
    assert again.run(left.run_id).state == "cancelled"
    assert again.run(kept.run_id).state == "queued"
