"""Clients that leave, and what becomes of their runs."""

from __future__ import annotations

import pytest

from iop.events import started
from iop.proto.link_pb2 import VERDICT_CANCEL, RunReport
from tests.edge.conftest import PERSON, FakeEdge, prompt, status


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
