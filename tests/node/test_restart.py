"""A node over two starts: what goes on goes on exactly, and what cannot ends once."""

from __future__ import annotations

import errno
import hashlib

import pytest
from twisted.internet.defer import Deferred

from iop.proto.link_pb2 import VERDICT_FENCED
from iop.proto.run_pb2 import CancelRequest, EventAck, Limits
from tests.node.fakes import House, config, target


def chained(*texts: bytes) -> bytes:
    digest = bytes(32)
    for text in texts:
        digest = hashlib.sha256(digest + text).digest()
    return digest


def test_a_run_that_lives_goes_on_behind_its_last_mark_as_one_run() -> None:
    house = House(outlive=True)
    run = house.begin()
    run.say("a", "b", mark=b"place 2")
    house.pair.pump()
    assert run.marks == [b"place 2"]
    run.say("never written", mark=b"place 3")
    run_id = run.spec.run_id
    then = house.again((run_id, 1), committed=2)
    (report,) = then.edge.of("runs_report")[0].runs
    assert (report.first_unacked, report.last_spooled, report.open) == (1, 3, True)
    assert then.edge.seen(run_id) == ["2:a", "3:b"]      # a batch is sent as it was packed
    (adapter,) = [adapter for adapter in then.factory.built if adapter.runs]
    (going_on,) = adapter.runs
    assert going_on.mark == b"place 2"
    going_on.say("c", mark=b"place 3")
    going_on.end()
    then.pair.pump()
    assert then.edge.seen(run_id)[-2:] == ["4:c", "5:completed"]
    _, outcome = then.edge.ending(run_id)
    assert (outcome.totals.events, outcome.totals.bytes) == (4, 3)
    assert outcome.totals.digest == chained(b"a", b"b", b"c")
    assert then.record.rows[run_id, 1] == ["completed"] and adapter.closed == 1
    then.tell("event_ack", EventAck(run_id=run_id, attempt=1, through_seq=5))
    assert not len(then.node.spool)


def test_an_old_run_goes_on_under_the_configuration_that_it_was_accepted_under() -> None:
    first = target("t", color="red")
    first.limits.run_s = 100
    house = House(config(first), outlive=True)
    run = house.begin()
    house.clock.advance(10)
    then = house.again((run.spec.run_id, 1), connect=False)
    then.edge.config = config(target("t", color="blue"), concurrency=1)
    then.connect()
    (old,) = [adapter for adapter in then.factory.built if adapter.runs]
    assert (old.targets["t"]["color"], then.adapter.targets["t"]["color"]) == ("red", "blue")
    assert old.runs[0].spec.limits.run_s == 100
    then.tell("run_request", then.request())
    assert then.edge.of("run_rejected")[0].code == "queue_full"      # it has the one slot
    old.runs[0].end()
    then.pair.pump()
    then.begin()


def test_the_limits_go_on_from_when_it_began() -> None:
    house = House(outlive=True)
    run = house.begin(limits=Limits(run_s=30))
    run.say("x")
    house.pair.pump()
    house.record.unended[run.spec.run_id, 1].accepted_us -= 20_000_000
    for _, box in house.node.spool.boxes():
        box.run._tally.entry.started_us -= 20_000_000
    run.say("y", mark=b"1")
    house.pair.pump()
    then = house.again((run.spec.run_id, 1), committed=3)
    (going_on,) = next(adapter for adapter in then.factory.built if adapter.runs).runs
    then.pass_time(8)
    assert going_on.stopped is None
    then.pass_time(3)
    assert going_on.stopped.code == "run_timeout"


@pytest.mark.parametrize("alive", [False, True])
def test_a_run_that_cannot_go_on_ends_once_behind_its_last_event(alive: bool) -> None:
    house = House()
    run = house.begin()
    run.say("a")
    house.pair.pump()
    key = run.spec.run_id, 1
    house.record.unended[key].adapter = "gone" if alive else "hand"
    then = house.again(*[key] * alive, committed=1)
    assert then.edge.seen(key[0]) == ["2:a", "3:failed"]
    kind, outcome = then.edge.ending(key[0])
    assert (outcome.code, outcome.retryable, outcome.totals.bytes) == ("node_restarted", True, 1)
    assert outcome.totals.digest == chained(b"a")
    assert then.record.rows[key] == ["failed"]
    assert then.tools.spawner.discarded == [key] * alive
    third = then.again(committed=3)
    assert third.edge.of("event_batch") == [] and not len(third.node.spool)
    assert third.record.rows[key] == ["failed"]


def test_a_run_without_any_event_is_refused_when_the_edge_asks_again() -> None:
    house = House()
    request = house.request()
    house.tell("run_request", request)
    then = house.again()
    assert then.edge.of("runs_report")[0].runs[:] == []
    assert then.record.rows[request.run_id, 1] == ["failed"]
    then.tell("run_request", request)
    assert then.edge.of("run_rejected")[0].code == "node_restarted"


def test_what_was_not_acknowledged_is_sent_by_the_next_start() -> None:
    house = House()
    run = house.begin()
    house.pair.cut()
    run.say("a")
    run.end()
    assert house.node.stopService().called
    then = house.again(committed=1)
    assert then.edge.seen(run.spec.run_id) == ["2:a", "3:completed"]
    assert then.record.rows[run.spec.run_id, 1] == ["completed"]
    then.tell("event_ack", EventAck(run_id=run.spec.run_id, attempt=1, through_seq=3))
    assert not len(then.node.spool)


def test_a_start_that_died_between_the_ending_and_its_record_brings_both_together() -> None:
    house = House()
    run = house.begin()
    house.record.end = lambda *ending: Deferred()
    run.end()
    house.pair.pump()
    house.tell("event_ack", EventAck(run_id=run.spec.run_id, attempt=1, through_seq=2))
    assert len(house.node.spool) == 1
    del house.record.end
    then = house.again(committed=2)
    assert then.record.rows[run.spec.run_id, 1] == ["completed"]
    assert not len(then.node.spool) and then.edge.of("event_batch") == []


def test_damage_ends_the_run_that_it_hit_and_no_other() -> None:
    house = House(outlive=True)
    one, other = house.begin(), house.begin()
    for run, text in ((one, "a"), (other, "HIT"), (one, "b"), (other, "y")):
        run.say(text, mark=b"m")
        house.pair.pump()
    (data,) = house.log.files.values()
    data[data.index(b"HIT")] ^= 1
    keys = [(run.spec.run_id, 1) for run in (one, other)]
    then = house.again(*keys, committed=1)
    kind, outcome = then.edge.ending(keys[1][0])
    assert (kind, outcome.code) == ("failed", "spool_corrupt")
    assert then.edge.seen(keys[1][0]) == ["2:failed"]
    assert then.edge.seen(keys[0][0]) == ["2:a", "3:b"]
    assert then.tools.spawner.discarded == [keys[1]] and then.log.aside
    assert [run.key for run in then.node.runs] == [keys[0]]


def test_a_spool_that_ends_before_what_the_edge_has_ends_the_run() -> None:
    house = House(outlive=True)
    run = house.begin()
    house.pair.pump()
    then = house.again((run.spec.run_id, 1), committed=5)
    kind, outcome = then.edge.ending(run.spec.run_id)
    assert (kind, outcome.code) == ("failed", "spool_corrupt")
    assert then.edge.seen(run.spec.run_id) == ["6:failed"]


def test_a_program_of_no_known_run_is_ended() -> None:
    house = House()
    then = house.again(("f" * 32, 1))
    assert then.tools.spawner.discarded == [("f" * 32, 1)]


def test_a_stop_that_was_asked_for_counts_over_a_restart() -> None:
    house = House(outlive=True)
    house.adapter.stops = False
    run = house.begin()
    house.tell("cancel_request", CancelRequest(run_id=run.spec.run_id, reason="enough"))
    then = house.again((run.spec.run_id, 1), committed=1)
    (going_on,) = next(adapter for adapter in then.factory.built if adapter.runs).runs
    assert going_on.stopped.code == "cancelled"
    then.pair.pump()
    kind, outcome = then.edge.ending(run.spec.run_id)
    assert (kind, outcome.code, outcome.message) == ("cancelled", "cancelled", "enough")


def test_a_fenced_run_is_stopped_and_its_rest_is_sent_and_dropped_once_acknowledged() -> None:
    house = House(outlive=True)
    run = house.begin()
    run.say("late", mark=b"m")
    house.pair.pump()
    key = run.spec.run_id, 1
    then = house.again(key, connect=False, committed=1)
    then.edge.verdict = VERDICT_FENCED
    then.connect()
    assert then.edge.seen(key[0]) == ["2:late", "3:failed"]
    then.tell("event_ack", EventAck(run_id=key[0], attempt=1, through_seq=3))
    assert not len(then.node.spool) and not then.node.runs


def test_a_suspended_node_leaves_what_outlives_it_and_ends_the_rest() -> None:
    house = House(outlive=True)
    lives = house.begin()
    house.adapter.outlive = False
    dies = house.begin()
    suspended = house.node.suspend()
    house.pass_time(19)
    assert not suspended.called and dies.stopped is None
    house.tell("run_request", house.request())
    assert house.edge.of("run_rejected")[0].code == "draining"
    house.pass_time(2)
    assert suspended.called and dies.stopped.code == "node_restarted" and lives.stopped is None
    assert house.edge.ending(dies.spec.run_id)[1].code == "node_restarted"
    lives.say("to nobody", mark=b"m")
    house.node.stopService()
    key = lives.spec.run_id, 1
    then = house.again(key, committed=1)
    assert [run.key for run in then.node.runs] == [key]
    assert house.record.rows[key] == []


def test_a_suspended_node_without_other_runs_does_not_wait() -> None:
    house = House(outlive=True)
    house.begin()
    assert house.node.suspend().called


def test_a_full_disk_holds_a_run_back_and_its_ending_too() -> None:
    house = House()
    run = house.begin()
    house.log.trouble = errno.ENOSPC
    run.say("a")
    house.pair.pump()
    assert run.paused and house.edge.seen(run.spec.run_id) == ["1:started"]
    run.end()
    house.pass_time(3)
    assert house.record.rows[run.spec.run_id, 1] == [] and len(house.node.runs) == 1
    house.log.trouble = 0
    house.pass_time(2)
    assert house.edge.seen(run.spec.run_id) == ["1:started", "2:a", "3:completed"]
    assert house.record.rows[run.spec.run_id, 1] == ["completed"] and not house.node.runs


def test_what_the_adapter_said_stands_beside_the_reason_that_counts() -> None:
    house = House()
    house.adapter.stops = False
    run = house.begin()
    house.tell("cancel_request", CancelRequest(run_id=run.spec.run_id))
    run.end("failed", code="program_failed", message="The program ended by signal 2.", signal=2)
    house.pair.pump()
    kind, outcome = house.edge.ending(run.spec.run_id)
    assert (kind, outcome.code, outcome.signal) == ("cancelled", "cancelled", 2)
    assert outcome.said == "failed (program_failed): The program ended by signal 2."


def test_a_run_that_does_not_start_ends_by_its_own_limit() -> None:
    house = House()
    house.tell("run_request", house.request(limits=Limits(start_s=5, first_output_s=2, run_s=3)))
    run = house.adapter.runs[0]
    house.pass_time(4)
    assert run.stopped is None
    house.pass_time(2)
    assert run.stopped.code == "start_timeout"
