"""What becomes of a node's servers when it stops and starts again."""

from __future__ import annotations

import pytest
from twisted.logger import capturedLogs

from iop.errors import Draining
from iop.node.servers import is_server
from tests.node.house import House, spec, warm


def test_a_stop_of_the_node_ends_all_and_refuses_who_waits(house):
    warm(house, spec("a"))
    waiting = house.use(spec("b"))
    stopped = house.servers.stop()
    assert isinstance(waiting.error, Draining) and isinstance(house.use(spec("c")).error, Draining)
    assert [program.asked for program in house.spawner.programs] == [["stop"], ["stop"]] and not stopped.called
    for program in house.spawner.programs:
        program.end(signal=2)
    assert stopped.called and len(house.spawner.programs) == 2


def test_a_later_start_takes_up_what_lives_and_has_the_same_spec(tmp_path):
    before = House(tmp_path)
    warm(before, spec())
    before.servers.let_go()
    assert before.last.asked == ["pause"]
    after = House(tmp_path)
    keys = {("server-a", 1), ("server-a", 7), ("server-b", 1)}
    assert all(map(is_server, keys)) and not is_server(("0" * 32, 1))
    assert after.servers.take_up(keys) == {("server-a", 1)}
    asked = after.use(spec())
    after.ready(1001)
    assert asked.use.url == "http://127.0.0.1:1001" and len(after.spawner.programs) == 1
    after.last.end(signal=9)
    after.pass_(1)
    assert after.last.request.attempt == 8               # a folder that may still be there is not used again


def test_one_of_an_earlier_start_with_another_spec_is_ended_before_the_new_one_starts(tmp_path):
    before = House(tmp_path)
    warm(before, spec())
    before.servers.let_go()
    after = House(tmp_path)
    after.servers.take_up({("server-a", 1)})
    asked = after.use(spec(env={"A": "1"}))
    assert after.last.asked == ["stop"] and len(after.spawner.programs) == 1
    after.last.end(exit_code=0)
    assert len(after.spawner.programs) == 2 and not asked.error


CHANGED, GONE = "its `serve` says something else now", "no target is on it any more"


@pytest.mark.parametrize("ready_first", [True, False])
@pytest.mark.parametrize(("now", "why"), [([spec(env={"A": "1"})], CHANGED), ([], GONE), ([spec("other")], GONE)])
def test_one_that_is_taken_up_and_not_configured_so_any_more_is_ended_with_a_line_that_says_why(
        tmp_path, now, why, ready_first):
    before = House(tmp_path)
    warm(before, spec())
    before.servers.let_go()
    after = House(tmp_path)
    after.servers.take_up({("server-a", 1)})
    if ready_first:
        after.ready(1001)
    with capturedLogs() as logged:
        after.servers.configured(now)
        for one in now:
            after.use(one)
        after.servers.configured(now)
    told = [event for event in logged if "is ended as soon as" in event["log_format"]]
    assert [(event["name"], event["why"]) for event in told] == [("a", why)]
    assert after.spawner.programs[0].asked == ["stop"]


def test_one_that_is_configured_as_before_is_not_told_to_end(tmp_path):
    house = House(tmp_path)
    warm(house, spec())
    with capturedLogs() as logged:
        house.servers.configured([spec()])
    assert not any("is ended" in event["log_format"] for event in logged) and house.last.asked == []


def test_one_that_did_not_survive_is_not_started_until_it_is_needed(tmp_path):
    before = House(tmp_path)
    warm(before, spec())
    after = House(tmp_path)
    after.servers.take_up({("server-a", 1)})
    after.last.end(lost="killed", processes_left=0)
    after.pass_(60)
    assert after.servers.state(spec()) == "cold" and len(after.spawner.programs) == 1
