"""Which of a node's servers are in memory, and which go for others."""

from __future__ import annotations

import pytest

from iop.errors import Conflict
from tests.node.house import House, spec, warm


def test_the_memory_budget_has_the_least_recently_used_idle_server_unloaded_first(tmp_path):
    house = House(tmp_path, budget=100)
    a, b, c = (spec(name, memory_bytes=50, idle_s=0) for name in "abc")
    warm(house, a).use.release()
    house.pass_(1)
    warm(house, b).use.release()
    house.pass_(1)
    house.use(a).use.release()                           # so that b is the one
    asked = house.use(c)
    assert [program.asked for program in house.spawner.programs] == [[], ["stop"]]
    assert "waits until there is memory" in asked.said[-1][0]
    house.spawner.programs[1].end(exit_code=0)
    assert len(house.spawner.programs) == 3
    house.ready()
    assert asked.served and house.servers.state(a) == "warm" and house.servers.state(b) == "cold"


def test_a_run_waits_for_room_while_others_are_in_use_and_is_told_why(tmp_path):
    house = House(tmp_path, budget=100)
    a, b = spec("a", memory_bytes=60), spec("b", memory_bytes=60)
    using = warm(house, a)
    asked = house.use(b)
    assert asked.said[-1][0] == "b waits for memory, which is taken by a" and house.last.asked == []
    using.use.release()
    assert house.last.asked == ["stop"]
    house.last.end(exit_code=0)
    house.ready()
    assert asked.served


def test_one_that_waits_long_gets_its_turn_though_the_other_is_always_in_use(tmp_path):
    house = House(tmp_path, budget=100)
    a, b = spec("a", memory_bytes=60), spec("b", memory_bytes=60)
    using = warm(house, a)
    asked = house.use(b)
    house.pass_(20)
    again = house.use(a)                                 # before its turn: served at once
    assert again.served
    house.pass_(15)
    behind = house.use(a)                                # after it: waits behind b
    assert not behind.served
    using.use.release()
    again.use.release()
    house.spawner.programs[0].end(exit_code=0)
    house.ready()
    assert asked.served and not behind.served
    asked.use.release()
    house.spawner.programs[1].end(exit_code=0)
    house.ready()
    assert behind.served


def test_one_that_can_never_fit_is_refused_with_both_numbers(tmp_path):
    house = House(tmp_path, budget=100)
    asked = house.use(spec(memory_bytes=101))
    assert "101" in asked.error.message and "100" in asked.error.message
    assert house.servers.state(spec(memory_bytes=101)) == asked.error.message


def test_unload_ends_an_idle_server_and_refuses_one_in_use(house):
    asked = warm(house, spec())
    with pytest.raises(Conflict, match="1 run"):
        house.servers.unload(spec())
    asked.use.release()
    house.servers.unload(spec())
    assert house.last.asked == ["stop"]
    house.servers.unload(spec("never"))


def test_a_spec_that_changed_under_its_name_replaces_the_old_server_once_that_is_free(house):
    old, new = spec(), spec(env={"A": "1"})
    using = warm(house, old)
    house.servers.configured([new])
    asked = house.use(new)
    assert not asked.served and house.last.asked == [] and len(house.spawner.programs) == 1
    using.use.release()
    assert house.last.asked == ["stop"]
    house.last.end(exit_code=0)
    assert house.last.request.env["A"] == "1" and house.last.request.attempt == 2
    house.ready()
    assert asked.served


def test_one_that_is_configured_no_more_goes_when_it_is_free(house):
    using = warm(house, spec())
    house.servers.configured([])
    assert house.last.asked == []
    using.use.release()
    assert house.last.asked == ["stop"]
