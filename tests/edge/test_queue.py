"""Fair turns, the positions that are told, and how fast the queue drains."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iop.edge.queue import RunQueue
from iop.errors import QueueFull

_numbers = itertools.count(1)


def run(principal: str = "anna", priority: int = 0, session: str = "", affinity: str = "") -> Any:
    number = next(_numbers)
    return SimpleNamespace(
        run_id=f"{number:08x}", arrival=number, record=SimpleNamespace(priority=priority, principal=principal),
        request=SimpleNamespace(session_id=session, affinity=affinity))


def nobody(principal: str) -> bool:
    return False


def served(queue: RunQueue, count: int = 10_000) -> list[Any]:
    """The runs that are placed next, one at a time."""
    found = []
    while len(found) < count and (first := queue.walk(nobody).next()) is not None:
        queue.remove(first, served=True)
        found.append(first)
    return found


def test_the_queue_goes_by_priority_and_then_by_arrival() -> None:
    queue = RunQueue(10)
    first, second, urgent = run(), run(), run(priority=5)
    assert [queue.add(first), queue.add(second), queue.add(urgent)] == [1, 2, 1]
    assert list(queue) == [urgent, first, second]
    assert queue.remove(first) and not queue.remove(first)
    assert served(queue) == [urgent, second] and first not in queue and not len(queue)


def test_a_run_that_comes_back_stands_where_it_stood_among_those_of_its_conversation() -> None:
    queue = RunQueue(10)
    first, second = run(), run()
    assert [queue.add(second), queue.add(first)] == [1, 1]


def test_the_queue_counts_places_that_are_held() -> None:
    queue = RunQueue(2)
    queue.hold("anna")
    queue.add(run("anna"))
    with pytest.raises(QueueFull, match="all of its 2 places are taken"):
        queue.hold("anna")
    queue.release("anna")
    queue.hold("anna")


def test_a_queue_that_one_owner_has_filled_is_not_full_for_others() -> None:
    queue = RunQueue(20)
    for _ in range(20):
        queue.hold("greedy")
    for owner in ("a", "b", "c"):
        queue.hold(owner)
        with pytest.raises(QueueFull):
            queue.hold(owner)
    with pytest.raises(QueueFull):
        queue.hold("d")
    queue.release("a")
    queue.hold("d")
    with pytest.raises(QueueFull):
        RunQueue(0).hold("a")


def test_a_greedy_key_does_not_delay_the_first_of_another_by_more_than_a_turn() -> None:
    queue = RunQueue(1000)
    greedy = [run("greedy") for _ in range(100)]
    assert [queue.add(one) for one in greedy] == list(range(1, 101))
    assert served(queue, 10) == greedy[:10]
    modest = run("modest")
    assert queue.add(modest) == 2
    assert modest in served(queue, 2)


def test_keys_take_turns_also_where_one_of_them_comes_back_at_once() -> None:
    queue = RunQueue(1000)
    for _ in range(20):
        queue.add(run("greedy"))
    names = []
    queue.add(run("eager"))
    for _ in range(10):
        one, = served(queue, 1)
        names.append(one.record.principal)
        if names[-1] == "eager":
            queue.add(run("eager"))
    assert names == ["greedy", "eager"] * 5


def test_conversations_of_one_key_take_turns() -> None:
    queue = RunQueue(1000)
    for session in ("a", "a", "a", "b", "b"):
        queue.add(run(session=session))
    queue.add(run(affinity="c"))
    assert [one.request.session_id or "c" for one in served(queue)] == ["a", "b", "c", "a", "b", "a"]


def test_new_conversations_do_not_starve_one_that_goes_on() -> None:
    queue = RunQueue(1000)
    old = run(affinity="old")
    queue.add(run(affinity="x"))
    queue.add(old)
    for number in range(3):
        queue.add(run(affinity=f"new{number}"))
    assert served(queue, 2)[1] is old


def test_runs_of_one_pool_do_not_wait_for_those_of_another() -> None:
    queue = RunQueue(1000)
    stuck, urgent, other = run(priority=1), run(priority=9), run()
    assert [queue.add(stuck, "big"), queue.add(urgent, "big"), queue.add(other, "small")] == [1, 1, 1]
    walk = queue.walk(nobody)
    assert walk.next() is urgent
    walk.stuck(urgent)
    assert walk.next() is other
    walk.passed(other)
    assert walk.next() is None


def test_an_owner_who_is_at_his_limit_is_left_out() -> None:
    queue = RunQueue(1000)
    queue.add(run("full", priority=5))
    other = run("other")
    queue.add(other)
    assert queue.walk(lambda principal: principal == "full").next() is other


runs = st.tuples(st.sampled_from("abcd"), st.sampled_from((0, 0, 0, 5)), st.sampled_from(("", "s", "t", "u")))
steps = st.lists(st.one_of(runs, st.integers(0, 30)), max_size=60)


@given(steps)
def test_the_position_told_is_the_one_in_which_it_is_placed(steps: list[Any]) -> None:
    """Whatever came, went and was placed before: if no more come, the nth in line is the nth to be placed."""
    queue, waiting = RunQueue(1000), []
    for step in steps:
        if isinstance(step, tuple):
            principal, priority, session = step
            one = run(principal, priority, session)
            position = queue.add(one)
            waiting.append(one)
            assert list(queue)[position - 1] is one
        elif step % 2 and waiting:
            gone = waiting.pop(step % len(waiting))
            assert queue.remove(gone)
        else:
            for one in served(queue, 1):
                waiting.remove(one)
    order = list(queue)
    assert sorted(one.arrival for one in order) == sorted(one.arrival for one in waiting)
    assert served(queue) == order
    assert not len(queue) and not queue._owned and queue.add(run()) == 1


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=100), st.integers(0, 20))
def test_a_newcomer_waits_for_at_most_one_run_of_each_other_key(others: list[str], before: int) -> None:
    queue = RunQueue(1000)
    for name in others:
        queue.add(run(name))
    served(queue, before)
    newcomer = run("new")
    position = queue.add(newcomer)
    assert position <= len(set(others)) + 1
    assert served(queue, position)[-1] is newcomer
