from __future__ import annotations

from typing import Any

import pytest

from iop.edge.placement import Candidate, Wanted, choose
from iop.errors import NoNode, NoSuchTarget, QueueTimeout

ECHO, OTHER = ("mock", "echo"), ("vllm", "echo")


def wanted(node_id: str = "", affinity: str = "", holder: str = "", **labels: str) -> Wanted:
    return Wanted([ECHO], labels, node_id, holder, (affinity, ECHO) if affinity else None)


def one(node_id: str, free: int = 1, **fields: Any) -> Candidate:
    capacity = fields.get("capacity", max(free, 1))
    known = {"node_id": node_id, "free": free, "name": ECHO, "capacity": capacity, "taken": capacity - free}
    return Candidate(**known | fields)


def picked(*candidates: Candidate, **asked: str) -> tuple[str, str]:
    choice = choose(wanted(**asked), candidates)
    return choice.node_id, choice.reason


def test_the_least_busy_node_is_chosen_and_ties_go_by_name() -> None:
    assert picked(one("b", 1, capacity=4), one("a", 3, capacity=4)) == ("a", "least busy")
    assert picked(one("b", 2, capacity=4), one("a", 1, capacity=2)) == ("b", "least busy")
    assert picked(one("b", running=0), one("a", running=3)) == ("b", "least busy")
    assert picked(one("b"), one("a")) == ("a", "least busy")


def test_a_node_of_three_times_the_weight_is_given_three_times_as_much() -> None:
    taken = {"a": 0, "b": 0}
    for _ in range(8):
        node_id, _ = picked(one("a", 6 - taken["a"], capacity=6), one("b", 6 - taken["b"], capacity=6, weight=3.0))
        taken[node_id] += 1
    assert taken == {"a": 2, "b": 6}


@pytest.mark.parametrize(("weight", "shares"), [(1.0, (4, 4)), (3.0, (2, 6))])
def test_targets_that_share_the_slots_of_one_adapter_get_their_shares_too(weight: float, shares: tuple[int, int]) -> None:
    taken = {ECHO: 0, ("mock", "other"): 0}
    for total in range(8):
        choice = choose(Wanted(list(taken), alias="both"), [
            one("n1", 100 - total, capacity=100, name=name, taken=own, running=total, weight=weight if name != ECHO else 1.0)
            for name, own in taken.items()])
        taken[choice.name] += 1
    assert tuple(taken.values()) == shares


def test_a_target_that_nobody_offers_is_refused() -> None:
    with pytest.raises(NoSuchTarget, match="No node offers mock/echo"):
        choose(wanted(), [])
    with pytest.raises(NoSuchTarget, match="The node n9 does not offer"):
        choose(wanted("n9"), [one("a")])
    with pytest.raises(NoSuchTarget, match="No node offers qwen"):
        choose(Wanted([ECHO, OTHER], alias="qwen"), [])


def test_a_pinned_run_waits_for_its_node_and_takes_no_other() -> None:
    choice = choose(wanted("a"), [one("a", 0), one("b", 5)])
    assert not choice.node_id and isinstance(choice.obstacle, QueueTimeout)
    assert picked(one("a"), one("b", 5), node_id="a") == ("a", "pinned")


def test_the_node_of_its_session_wins_over_affinity_and_load() -> None:
    assert picked(one("a", 1, capacity=9), one("b", 5), holder="a", affinity="b") == ("a", "session")
    assert not choose(wanted(holder="a"), [one("a", 0), one("b", 5)]).node_id


def test_labels_must_all_be_carried() -> None:
    gpu, cpu = one("g", labels={"gpu": "yes", "zone": "a"}), one("c", labels={"zone": "a"})
    assert picked(cpu, gpu, gpu="yes", zone="a") == ("g", "only one")
    choice = choose(wanted(gpu="no"), [cpu, gpu])
    assert isinstance(choice.obstacle, NoNode) and "gpu=no" in choice.obstacle.message


@pytest.mark.parametrize("state, reason", [({"up": False}, "a is down"), ({"draining": True}, "a is draining")])
def test_a_node_that_cannot_is_waited_for_with_the_reason(state: dict[str, Any], reason: str) -> None:
    choice = choose(wanted(), [one("a", **state)])
    assert isinstance(choice.obstacle, NoNode) and reason in choice.obstacle.message
    assert choose(wanted(), [one("a", **state), one("b")]).node_id == "b"


def test_a_backend_that_is_away_is_a_second_choice_and_its_error_is_told_at_once() -> None:
    assert picked(one("a", ready=False), one("b", running=9)) == ("b", "only one")
    assert picked(one("a", ready=False)) == ("a", "only one")
    assert not choose(wanted(), [one("a", ready=False), one("b", 0)]).node_id
    assert picked(one("a", ready=False), one("b"), affinity="a") == ("b", "only one")


def test_affinity_wins_over_warmth_and_load() -> None:
    assert picked(one("a", 1, capacity=9, warm=False), one("b", 9), affinity="a") == ("a", "affinity")


def test_a_run_whose_usual_node_is_full_is_spilled_and_that_is_told() -> None:
    assert picked(one("a", 0), one("b"), one("c", 9), affinity="a") == ("c", "spilled from a: full")
    assert not choose(wanted(affinity="a"), [one("a", 0), one("b", 0)]).node_id


def test_affinity_to_a_node_that_cannot_is_no_affinity() -> None:
    assert picked(one("a", up=False), one("b"), one("c", 2), affinity="a") == ("c", "least busy")
    assert picked(one("b"), one("c", 2), affinity="gone") == ("c", "least busy")


def test_a_node_where_the_model_is_loaded_wins_over_an_idle_one() -> None:
    assert picked(one("a", 9, warm=False), one("b", 1, capacity=9)) == ("b", "warm")
    assert picked(one("a", 9, warm=False), one("b", 0)) == ("a", "only one free")
    assert picked(one("a", 9, warm=False), one("b", 2, warm=False)) == ("a", "least busy")


def test_an_alias_is_placed_among_all_its_targets() -> None:
    both = [one("n1", 1, capacity=4), one("n2", 3, capacity=4, name=OTHER)]
    choice = choose(Wanted([ECHO, OTHER], alias="qwen"), both)
    assert (choice.node_id, choice.name, choice.reason) == ("n2", OTHER, "least busy")
    choice = choose(Wanted([ECHO, OTHER], alias="qwen", affinity=("n1", ECHO)), both)
    assert (choice.node_id, choice.name, choice.reason) == ("n1", ECHO, "affinity")
