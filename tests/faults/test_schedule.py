"""A schedule follows from its seed, and is fair to all kinds."""

from __future__ import annotations

from collections import Counter

from tests.faults.kinds import KINDS
from tests.faults.schedule import ONLY_SQLITE, ROLL_BACK, plan


def test_the_same_seed_gives_the_same_faults():
    assert plan(7, 300, sorted(KINDS), True) == plan(7, 300, sorted(KINDS), True)
    assert plan(7, 300, sorted(KINDS), True) != plan(8, 300, sorted(KINDS), True)


def test_every_kind_comes_thirty_times_in_a_thousand():
    counts = Counter(kind for one in plan(1, 1000, sorted(KINDS), True) for kind in one.kinds)
    assert sum(counts.values()) == 1000
    assert set(counts) == {*KINDS, ROLL_BACK} and min(counts.values()) >= 30


def test_a_history_disk_is_filled_only_where_it_is_ours():
    plans = plan(1, 1000, sorted(KINDS), True)
    assert any(one.postgresql for one in plans) and any(ONLY_SQLITE in one.kinds for one in plans)
    assert not any(one.postgresql and ONLY_SQLITE in one.kinds for one in plans)


def test_every_world_ends_with_a_roll_back():
    assert all(one.kinds[-1] == ROLL_BACK and one.kinds.count(ROLL_BACK) == 1 for one in plan(3, 200, sorted(KINDS), False))


def test_a_short_one_is_one_world():
    (one,) = plan(3, 12, sorted(KINDS), False)
    assert len(one.kinds) == 12
