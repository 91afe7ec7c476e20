from __future__ import annotations

from typing import Any

import pytest
from zope.interface.verify import verifyObject

from iop.edge import acks
from iop.errors import Conflict, Draining, InvalidRequest, NoSuchNode, NoSuchRun
from iop.events import started
from iop.interfaces import IEdgeService
from iop.link.errors import LinkDown
from iop.proto.node_pb2 import NodeCommandResponse
from iop.proto.run_pb2 import RunRequest
from iop.records import RunQuery
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


def test_a_cursor_on_an_unknown_run_says_so(edge: FakeEdge) -> None:
    with pytest.raises(NoSuchRun):
        result_of(edge.service.cursor("f" * 32, EventId(0, 0)))
