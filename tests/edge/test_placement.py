from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from iop.edge.placement import Candidate, Wanted, choose
from iop.edge.queue import RunQueue
from iop.errors import NoNode, NoSuchTarget, QueueFull, QueueTimeout


def wanted(node_id: str = "", **labels: str) -> Wanted:
    return Wanted("mock", "echo", labels, node_id)


def one(node_id: str, free: int = 1, **fields: Any) -> Candidate:
    return Candidate(node_id=node_id, free=free, **fields)


def test_the_least_busy_node_is_chosen_and_ties_go_by_name() -> None:
    assert choose(wanted(), [one("b", 1, capacity=4), one("a", 3, capacity=4)]).node_id == "a"
    assert choose(wanted(), [one("b", 2, capacity=4), one("a", 1, capacity=2)]).node_id == "a"
    assert choose(wanted(), [one("b", running=0), one("a", running=3)]).node_id == "b"


def test_a_target_that_nobody_offers_is_refused() -> None:
    with pytest.raises(NoSuchTarget, match="No node offers mock/echo"):
        choose(wanted(), [])
    with pytest.raises(NoSuchTarget, match="The node n9 does not offer"):
        choose(wanted("n9"), [one("a")])


def test_a_pinned_run_waits_for_its_node_and_takes_no_other() -> None:
    choice = choose(wanted("a"), [one("a", 0), one("b", 5)])
    assert not choice.node_id and isinstance(choice.obstacle, QueueTimeout)


def test_labels_must_all_be_carried() -> None:
    gpu, cpu = one("g", labels={"gpu": "yes", "zone": "a"}), one("c", labels={"zone": "a"})
    assert choose(wanted(gpu="yes", zone="a"), [cpu, gpu]).node_id == "g"
    choice = choose(wanted(gpu="no"), [cpu, gpu])
    assert isinstance(choice.obstacle, NoNode) and "gpu=no" in choice.obstacle.message


@pytest.mark.parametrize("state, reason", [({"up": False}, "a is down"), ({"draining": True}, "a is draining")])
def test_a_node_that_cannot_is_waited_for_with_the_reason(state: dict[str, Any], reason: str) -> None:
    choice = choose(wanted(), [one("a", **state)])
    assert isinstance(choice.obstacle, NoNode) and reason in choice.obstacle.message
    assert choose(wanted(), [one("a", **state), one("b")]).node_id == "b"


def test_a_backend_that_is_away_is_a_second_choice_and_its_error_is_told_at_once() -> None:
    assert choose(wanted(), [one("a", ready=False), one("b", running=9)]).node_id == "b"
    assert choose(wanted(), [one("a", ready=False)]).node_id == "a"
    assert not choose(wanted(), [one("a", ready=False), one("b", 0)]).node_id


def run(number: int, priority: int = 0) -> Any:
    return SimpleNamespace(run_id=f"{9 - number:032x}", arrival=number, record=SimpleNamespace(priority=priority))


def test_the_queue_goes_by_priority_and_then_by_arrival() -> None:
    queue = RunQueue(10)
    first, second, urgent = run(1), run(2), run(3, priority=5)
    assert [queue.add(second), queue.add(first), queue.add(urgent)] == [1, 1, 1]
    assert list(queue) == [urgent, first, second]
    assert queue.remove(first) and not queue.remove(first)
    assert list(queue) == [urgent, second] and first not in queue


def test_the_queue_counts_places_that_are_held() -> None:
    queue = RunQueue(2)
    queue.hold()
    queue.add(run(1))
    with pytest.raises(QueueFull, match="1 runs are waiting"):
        queue.hold()
    queue.release()
    queue.hold()
