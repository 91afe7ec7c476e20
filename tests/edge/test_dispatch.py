"""Placement and the queue through a whole edge: aliases, affinity, fair turns."""

from __future__ import annotations

from typing import Any

import pytest

from iop.config import QueueConfig
from iop.edge.firstreports import REPORTED_S
from iop.errors import Conflict, NoSuchTarget, QueueFull
from iop.proto.run_pb2 import RunRejected, Source
from tests.edge.conftest import PERSON, FakeEdge, FakeNode, asked, finish, offering, prompt, result_of, status


def of(principal: str) -> Source:
    return Source(face="http", principal=principal)


def test_an_alias_means_all_the_targets_that_carry_it(two: tuple[FakeEdge, FakeNode, FakeNode]) -> None:
    edge, n1, n2 = two
    first, second, third = (edge.submit(asked()) for _ in range(3))
    assert [(one.node_id, one.adapter, one.target) for one in (first, second)] == [("n1", "o", "small"), ("n2", "v", "big")]
    assert third.state == "queued"
    assert (n2.accept().adapter, n2.accept().target) == ("v", "big")
    finish(n2, second.run_id)
    placed = edge.run(third.run_id)
    assert (placed.node_id, placed.adapter, placed.target, placed.alias) == ("n2", "v", "big", "qwen")
    kept = edge.history.kept.runs[third.run_id]
    assert (kept.adapter, kept.target, kept.placement) == ("v", "big", "only one free")
    assert edge.service.targets("qwen") == [("o", "small", ""), ("v", "big", "")]
    assert edge.service.resolve("qwen") == ("o", "small", "")


def test_a_name_that_says_which_target_means_that_one(two: tuple[FakeEdge, FakeNode, FakeNode]) -> None:
    edge, _, _ = two
    first, second = edge.submit(asked("v/big")), edge.submit(asked("n2/v/big"))
    assert (first.node_id, first.alias, first.placement) == ("n2", "", "only one")
    assert (second.state, second.pin) == ("queued", "n2")
    with pytest.raises(NoSuchTarget):
        edge.submit(asked("n1/v/big"))


def test_a_run_by_alias_waits_across_a_restart_for_any_of_its_targets(two: tuple[FakeEdge, FakeNode, FakeNode]) -> None:
    edge, _, _ = two
    for _ in range(2):
        edge.submit(asked())
    waiting = edge.submit(asked())
    again = edge.restarted()
    n3 = again.node("n3", told=offering(("x", "third")))
    again.clock.advance(REPORTED_S)
    placed = again.run(waiting.run_id)
    assert (placed.node_id, placed.adapter, placed.target) == ("n3", "x", "third")
    assert (n3.last("run_request").adapter, n3.last("run_request").target) == ("x", "third")


def test_a_run_that_its_node_refuses_goes_to_another_target_of_its_alias(two: tuple[FakeEdge, FakeNode, FakeNode]) -> None:
    edge, n1, n2 = two
    run = edge.submit(asked())
    n1.send("run_rejected", RunRejected(run_id=run.run_id, attempt=1, code="draining", message="busy", retryable=True))
    moved = edge.run(run.run_id)
    assert (moved.node_id, moved.attempt, n2.last("run_request").target) == ("n2", 2, "big")


def test_a_session_stays_with_the_target_that_its_alias_had(two: tuple[FakeEdge, FakeNode, FakeNode]) -> None:
    edge, n1, _ = two
    first = edge.submit(asked(session_id="s"))
    second = edge.submit(asked(session_id="s"))
    assert (first.node_id, second.state) == ("n1", "queued")
    finish(n1, first.run_id)
    assert (edge.run(second.run_id).node_id, edge.run(second.run_id).placement) == ("n1", "session")
    with pytest.raises(Conflict):
        edge.submit(asked("v/big", session_id="s"))


def test_a_key_used_again_under_an_alias_is_the_same_run_whatever_it_means_now(make_edge: Any) -> None:
    edge = make_edge()
    edge.node("n2", told=offering(("v", "big")))
    first = edge.submit(asked(), key="k")
    edge.node("n1", told=offering(("o", "small")))
    assert edge.submit(asked(), key="k").run_id == first.run_id


def test_programs_and_models_of_one_name_are_not_mixed(make_edge: Any) -> None:
    edge = make_edge()
    edge.node("n1", told=offering(("o", "review")))
    edge.node("n2", told=offering(("cli", "review")))
    assert edge.service.targets("review") == [("o", "review", "")]
    assert edge.service.targets("cli/review") == [("cli", "review", "")]


def test_runs_of_one_affinity_go_to_one_node_until_that_is_full(make_edge: Any) -> None:
    edge = make_edge()
    n1, n2 = (edge.node(name, told=offering(("o", "m"), concurrency=2)) for name in ("n1", "n2"))
    runs = [edge.submit(asked(affinity="talk")) for _ in range(3)]
    assert [(one.node_id, one.placement) for one in runs] == [
        ("n1", "least busy"), ("n1", "affinity"), ("n2", "spilled from n1: full")]
    other = edge.submit(asked(affinity="other"))
    assert (other.node_id, other.placement) == ("n2", "only one free")
    for one in (*runs, other):
        finish(n1 if one.node_id == "n1" else n2, one.run_id)
    assert edge.submit(asked(affinity="talk")).node_id == "n2"
    assert edge.history.kept.runs[runs[2].run_id].placement == "spilled from n1: full"
    assert edge.run(runs[2].run_id).as_dict()["placement"] == "spilled from n1: full"


def test_a_node_that_has_the_model_loaded_is_chosen_and_one_that_is_loading_it_next(make_edge: Any) -> None:
    edge = make_edge()
    cold, warm = offering(("o", "m"), concurrency=2, warm=False), offering(("o", "m"), concurrency=2, warm=True)
    edge.node("n1", told=cold)
    edge.node("n2", told=warm)
    edge.node("n3", told=cold)
    chosen = [(one.node_id, one.placement) for one in (edge.submit(asked()) for _ in range(4))]
    assert chosen == [("n2", "warm"), ("n2", "warm"), ("n1", "least busy"), ("n1", "warm")]


# --- fairness

def test_a_greedy_key_with_a_hundred_requests_delays_the_first_of_another_by_two_slots_at_most(edge: FakeEdge) -> None:
    node = edge.node(told=status(concurrency=2))
    greedy = [result_of(edge.service.submit(prompt(), of("greedy"))) for _ in range(100)]
    modest = result_of(edge.service.submit(prompt(), of("modest")))
    told = [event for event in edge.history.kept.events if event.run_id == modest.run_id and event.kind == "run_queued"]
    assert b'"position":2' in told[0].detail.replace(b" ", b"")
    assert [edge.service.position(one.run_id) for one in (greedy[0], greedy[2], modest, greedy[3])] == [0, 1, 2, 3]
    freed = 0
    for one in greedy:
        if edge.run(modest.run_id).state == "placed":
            break
        finish(node, one.run_id)
        freed += 1
    assert freed <= 2, "slots that went to others first"


def test_the_shares_of_keys_are_equal_while_all_of_them_wait(edge: FakeEdge) -> None:
    node = edge.node(told=status(concurrency=1))
    runs = {}
    for name, count in (("a", 30), ("b", 10), ("c", 10)):
        for _ in range(count):
            runs[result_of(edge.service.submit(prompt(), of(name))).run_id] = name
    order = []
    for _ in range(30):
        request = node.all("run_request")[-1]
        order.append(runs[request.run_id])
        finish(node, request.run_id)
    assert {name: order.count(name) for name in "abc"} == {"a": 11, "b": 10, "c": 9}, "the first was in no queue"


def test_a_model_that_is_away_does_not_hold_up_the_others(edge: FakeEdge) -> None:
    node = edge.node(told=status("echo", "other", concurrency=1))
    first = edge.submit()
    waiting = [edge.submit(prompt(labels={"gpu": "yes"})) for _ in range(3)] + [edge.submit(prompt("other"))]
    finish(node, first.run_id)
    assert [edge.run(one.run_id).state for one in waiting] == ["queued"] * 3 + ["placed"]


def test_a_full_queue_tells_when_a_place_will_be_free_by_how_fast_it_drains(make_edge: Any) -> None:
    edge = make_edge(queue=QueueConfig(limit=3))
    node = edge.node(told=status(concurrency=1))
    for _ in range(4):
        edge.submit()
    with pytest.raises(QueueFull) as refused:
        edge.submit()
    assert refused.value.retry_after_s == 0, "nothing has left the queue yet"
    for _ in range(20):
        edge.clock.advance(4.0)
        finish(node, node.all("run_request")[-1].run_id)
        edge.submit()
    with pytest.raises(QueueFull) as refused:
        edge.submit()
    assert refused.value.retry_after_s == pytest.approx(4.0, rel=0.35)


def test_who_asks_is_kept_with_the_run(edge: FakeEdge) -> None:
    edge.node()
    assert edge.submit().principal == PERSON.principal
