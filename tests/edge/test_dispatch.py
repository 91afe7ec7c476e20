"""Placement and the queue through a whole edge: aliases, affinity, fair turns."""

from __future__ import annotations

from typing import Any

import pytest

from iop.config import QueueConfig
from iop.edge.firstreports import REPORTED_S
from iop.errors import Conflict, NoSuchTarget, QueueFull
from iop.events import ending, output, started
from iop.proto.node_pb2 import AdapterState, NodeStatus, TargetState
from iop.proto.run_pb2 import EventBatch, Outcome, RunRejected, RunRequest, Source
from tests.edge.conftest import PERSON, FakeEdge, FakeNode, prompt, report, result_of, status


def offering(*places: tuple[str, str], concurrency: int = 1, **fields: Any) -> NodeStatus:
    """The status of a node with these targets (adapter, target), each also called qwen."""
    return NodeStatus(version="test", policy_mode="guided", adapters=[
        AdapterState(adapter=adapter, concurrency=concurrency, targets=[
            TargetState(adapter=adapter, target=target, aliases=["qwen"], ready=True, retry_safe=True, **fields)])
        for adapter, target in places])


def asked(model: str = "qwen", **fields: Any) -> RunRequest:
    return RunRequest(target=model, prompt="hello", **fields)


def of(principal: str) -> Source:
    return Source(face="http", principal=principal)


def finish(node: FakeNode, run_id: str) -> None:
    request, = [one for one in node.all("run_request") if one.run_id == run_id]
    node.emit(request, 1, started(request.adapter, request.target), ending("completed", Outcome(code="ok")))


@pytest.fixture
def two(make_edge: Any) -> tuple[FakeEdge, FakeNode, FakeNode]:
    """qwen is o/small on n1 and v/big on n2, one run at a time on each."""
    edge = make_edge()
    return edge, edge.node("n1", told=offering(("o", "small"))), edge.node("n2", told=offering(("v", "big")))


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


# --- a backend that failed before it said anything ---


BROKEN = Outcome(code="upstream_error", message="The backend cannot be reached.", retryable=True, upstream_status=503)


def fail(node: FakeNode, *before: Any, outcome: Outcome = BROKEN) -> None:
    node.emit(node.last("run_request"), 1, *before, ending("failed", outcome))


@pytest.mark.parametrize("outcome", [BROKEN, Outcome(code="adapter_error", message="No memory.", retryable=True)])
def test_a_run_whose_backend_failed_in_silence_goes_to_another_node(
        two: tuple[FakeEdge, FakeNode, FakeNode], outcome: Outcome) -> None:
    edge, n1, n2 = two
    run = edge.submit(asked())
    n1.accept()
    fail(n1, outcome=outcome)
    moved = edge.run(run.run_id)
    assert (moved.node_id, moved.attempt, moved.state, moved.target) == ("n2", 2, "placed", "big")
    assert list(edge.history.kept.late) == [(run.run_id, 1, 1)], "how the first attempt ended is kept apart"
    assert n1.last("event_ack").through_seq == 1, "its node may forget it"
    assert edge.kinds().count("run_failed_over") == 1
    finish(n2, run.run_id)
    assert edge.run(run.run_id).state == "completed"
    assert edge.submit(asked()).node_id == "n1", "its slot there is free again"


def test_another_target_of_its_alias_on_the_same_node_will_do(make_edge: Any) -> None:
    edge = make_edge()
    node = edge.node("n1", told=offering(("o", "small"), ("v", "big")))
    run = edge.submit(asked())
    first = node.accept()
    fail(node)
    second = node.accept()
    assert {(first.adapter, first.attempt), (second.adapter, second.attempt)} == {("o", 1), ("v", 2)}
    node.emit(second, 1, started("v", "big"), output("so"), ending("completed", Outcome(code="ok")))
    assert edge.run(run.run_id).state == "completed"


def test_where_all_have_failed_the_last_ones_words_are_the_answer(two: tuple[FakeEdge, FakeNode, FakeNode]) -> None:
    edge, n1, n2 = two
    run = edge.submit(asked())
    fail(n1)
    fail(n2, outcome=Outcome(code="upstream_error", message="also", retryable=True, upstream_status=502))
    ended = edge.run(run.run_id)
    assert (ended.state, ended.attempt, ended.node_id) == ("failed", 2, "n2")
    assert (Outcome.FromString(ended.outcome).message, Outcome.FromString(ended.outcome).upstream_status) == ("also", 502)


def test_a_backend_that_began_and_said_nothing_has_failed_in_silence(two: tuple[FakeEdge, FakeNode, FakeNode]) -> None:
    """vLLM answers 200 before it reads the prompt."""
    edge, n1, n2 = two
    run = edge.submit(asked())
    request = n1.accept()
    n1.emit(request, 1, started("o", "small"))
    assert edge.run(run.run_id).state == "running"
    n1.emit(request, 2, ending("failed", BROKEN))
    moved = edge.run(run.run_id)
    assert (moved.node_id, moved.attempt, moved.state, moved.started_us) == ("n2", 2, "placed", 0)
    assert n1.last("event_ack").through_seq == 2
    n2.accept()
    n2.emit(n2.last("run_request"), 1, started("v", "big"))
    assert edge.run(run.run_id).state == "running"
    n2.emit(n2.last("run_request"), 2, output("so"), ending("completed", Outcome(code="ok")))
    assert edge.run(run.run_id).state == "completed"
    kept = [(batch.attempt, batch.first_seq) for batch in edge.history.kept.batches[run.run_id]]
    assert kept == [(1, 1), (2, 1), (2, 2)]


def test_what_an_earlier_start_of_the_edge_took_in_may_have_been_output(two: tuple[FakeEdge, FakeNode, FakeNode]) -> None:
    edge, n1, _ = two
    run = edge.submit(asked())
    request = n1.accept()
    n1.emit(request, 1, started("o", "small"), output("so"))
    again = edge.restarted()
    n2 = again.node("n2", told=offering(("v", "big")))
    n1 = again.node("n1", [report(request, 3, first=3, open_=False)], told=offering(("o", "small")))
    n1.send("event_batch", EventBatch(run_id=run.run_id, attempt=1, first_seq=3, events=[ending("failed", BROKEN)]))
    assert again.run(run.run_id).state == "failed" and not n2.all("run_request")


@pytest.mark.parametrize("why", ["output", "output before", "a limit", "not retryable", "not safe", "pinned", "session",
                                 "the other is away"])
def test_a_failure_is_the_answer_where_another_node_would_not_be_right(
        two: tuple[FakeEdge, FakeNode, FakeNode], why: str) -> None:
    edge, n1, n2 = two
    request = {"not safe": asked(retry_safe=False), "pinned": asked("n1/o/small"), "session": asked(session_id="s")}
    run = edge.submit(request.get(why, asked()))
    if why == "the other is away":
        away = offering(("v", "big"))
        away.adapters[0].targets[0].ready = False
        n2.send("node_status", away)
    before = [output("so")] if why == "output" else []
    if why == "output before":
        n1.emit(n1.last("run_request"), 1, output("so"))
        n1.emit(n1.last("run_request"), 2, ending("failed", BROKEN))
    else:
        fail(n1, *before, outcome={"not retryable": Outcome(code="upstream_error"),
                                   "a limit": Outcome(code="first_output_timeout", retryable=True)}.get(why, BROKEN))
    assert (edge.run(run.run_id).state, edge.run(run.run_id).attempt) == ("failed", 1)
    assert not n2.all("run_request") and not edge.history.kept.late


def test_a_run_that_somebody_cancels_does_not_move(two: tuple[FakeEdge, FakeNode, FakeNode]) -> None:
    edge, n1, n2 = two
    run = edge.submit(asked())
    n1.accept()
    edge.service.cancel(run.run_id, PERSON)
    fail(n1)
    assert edge.run(run.run_id).state == "failed" and not n2.all("run_request")
