"""Which servers go so that another one fits."""

from __future__ import annotations

import pytest

from iop.node.room import Held, must_yield, room_for

A, B, C = Held("a", 40, True, 1.0), Held("b", 40, True, 2.0), Held("c", 20, False, 0.0)


@pytest.mark.parametrize(("needed", "held", "going"), [
    (10, [], []), (0, [A, B, C], []), (10, [A, B, C], ["a"]), (50, [A, B, C], ["a", "b"]), (81, [A, B, C], None),
    (40, [A._replace(leaving=True), B, C], []), (50, [A._replace(idle=False), B, C], None)])
def test_the_least_recently_used_idle_ones_go_and_no_more_than_need_be(needed, held, going):
    assert room_for(needed, 100, held) == going


def test_without_a_budget_all_fit():
    assert room_for(10 ** 12, 0, [A, B, C]) == []


def test_who_waited_long_has_idle_ones_go_first_and_then_those_in_use():
    assert must_yield(100, 100, [C, B, A]) == ["a", "b", "c"]
    assert must_yield(30, 100, [C, A._replace(idle=False), B]) == ["b"]
