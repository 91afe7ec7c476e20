"""A node and its edge over a memory wire."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace

import msgspec
import pytest
from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

from iop import events
from iop.errors import UpstreamError
from iop.interfaces import IAdapterTools, ILinkHandler, IRunSink
from iop.link.limits import default_limits
from iop.node.lifecycle import Lifecycle
from iop.proto.link_pb2 import VERDICT_CANCEL, VERDICT_FENCED, VERDICT_UNKNOWN
from iop.proto.node_pb2 import NodeCommandRequest
from iop.proto.run_pb2 import CancelRequest, EventAck, Limits, Resend, RunInput
from tests.node.fakes import House, config, target


def test_it_provides_what_it_says() -> None:
    house = House()
    assert verifyObject(ILinkHandler, house.node)
    assert verifyObject(IAdapterTools, house.tools)
    run = house.begin()
    assert verifyObject(IRunSink, run.sink)


def test_a_new_link_reports_then_takes_the_configuration_then_tells_its_status() -> None:
    house = House()
    assert [kind for kind, _ in house.edge.got] == ["runs_report", "config_applied", "node_status"]
    (status,) = house.edge.of("node_status")
    assert (status.policy_mode, dict(status.labels)) == ("guided", {"zone": "a", "own": "yes"})
    assert [(one.target, one.ready) for one in status.adapters[0].targets] == [("t", True)]


def test_a_run_is_accepted_and_its_events_arrive_numbered() -> None:
    house = House()
    run = house.begin()
    run.say("a", "b")
    run.end()
    house.pair.pump()
    run_id = run.spec.run_id
    assert house.edge.of("run_accepted")[0].run_id == run_id
    assert house.edge.seen(run_id) == ["1:started", "2:a", "3:b", "4:completed"]
    kind, outcome = house.edge.ending(run_id)
    assert (kind, outcome.code, outcome.totals.events, outcome.totals.bytes) == ("completed", "ok", 3, 2)
    assert outcome.totals.digest == hashlib.sha256(hashlib.sha256(bytes(32) + b"a").digest() + b"b").digest()
    assert house.record.rows[run_id, 1] == ["completed"]


def test_one_emit_is_one_frame_at_once() -> None:
    house = House()
    run = house.begin()
    run.say(*"abcdef")
    house.pair.pump()
    assert [len(batch.events) for batch in house.edge.of("event_batch")] == [1, 6]


def test_nothing_starts_before_the_record_has_it() -> None:
    house = House()
    house.record.hold = True
    house.tell("run_request", house.request())
    assert house.edge.of("run_accepted") == []
    assert house.adapter.runs == []
    house.record.commit()
    house.pair.pump()
    assert len(house.edge.of("run_accepted")) == len(house.adapter.runs) == 1


def test_a_repeated_request_is_answered_and_not_executed() -> None:
    house = House()
    request = house.request()
    for _ in range(3):
        house.tell("run_request", request)
    assert len(house.adapter.runs) == 1
    assert len(house.edge.of("run_accepted")) == 3
    house.record.hold = True
    again = house.request()
    house.tell("run_request", again)
    house.tell("run_request", again)
    house.record.commit()
    assert len(house.adapter.runs) == 2


def test_a_run_of_an_earlier_start_is_not_executed_again() -> None:
    house = House()
    request = house.request()
    house.record.rows[request.run_id, 1] = []
    house.tell("run_request", request)
    assert house.edge.of("run_rejected")[0].code == "node_restarted"
    assert house.adapter.runs == []
    assert house.offers.backends["hand"].running == 0


def test_a_record_that_fails_refuses_the_run() -> None:
    house = House()
    house.record.broken = True
    house.tell("run_request", house.request())
    (word,) = house.edge.of("run_rejected")
    assert (word.code, word.retryable) == ("history_unavailable", True)
    assert "node's own record" in word.message
    assert not house.node.runs and not len(house.node.spool)


@pytest.mark.parametrize("fields, code", [
    ({"target": "nope"}, "no_such_target"), ({"adapter": "nope"}, "no_such_target"), ({"run_id": "x"}, "invalid_request"),
    ({"attempt": 0}, "invalid_request")])
def test_what_cannot_be_carried_out_is_refused(fields, code) -> None:
    house = House()
    house.tell("run_request", house.request(**fields))
    assert [word.code for word in house.edge.of("run_rejected")] == [code]


def test_slots_are_kept_per_adapter_and_per_target() -> None:
    house = House(config(target("t"), target("u"), concurrency=2))
    house.begin()
    house.begin(target="u")
    house.tell("run_request", house.request())
    (word,) = house.edge.of("run_rejected")
    assert (word.code, word.retryable) == ("queue_full", True)
    house.adapter.runs[0].end()
    house.begin()
    narrow = target("t")
    narrow.concurrency = 1
    house = House(config(narrow))
    house.begin()
    house.tell("run_request", house.request())
    assert [word.code for word in house.edge.of("run_rejected")] == ["queue_full"]


def test_a_cancel_ends_as_cancelled_whatever_the_adapter_says() -> None:
    house = House()
    house.adapter.stops = False
    run = house.begin()
    house.tell("cancel_request", CancelRequest(run_id=run.spec.run_id))
    assert run.stopped.code == "cancelled"
    run.end("completed", exit_code=0)
    house.pair.pump()
    kind, outcome = house.edge.ending(run.spec.run_id)
    assert (kind, outcome.code, outcome.exit_code) == ("cancelled", "cancelled", 0)


def test_an_adapter_that_never_ends_its_run_does_not_keep_it_for_ever() -> None:
    house = House(config(target("t"), concurrency=1))
    house.adapter.stops = False
    run = house.begin()
    house.tell("cancel_request", CancelRequest(run_id=run.spec.run_id))
    house.pass_time(run.stop_s - 1)
    assert [kind for kind in house.edge.seen(run.spec.run_id) if "cancelled" in kind] == [] and len(house.node.runs) == 1
    house.pass_time(3)
    kind, outcome = house.edge.ending(run.spec.run_id)
    assert (kind, outcome.code, outcome.HasField("processes_left")) == ("cancelled", "cancelled", False)
    house.begin()                     # its slot is free
    run.say("late")
    run.end()
    house.pair.pump()
    assert house.edge.ending(run.spec.run_id)[0] == "cancelled"


def test_a_stopped_run_that_is_held_back_is_not_given_up() -> None:
    house = House()
    house.adapter.stops = False
    run = house.begin()
    house.node.runs.get((run.spec.run_id, 1)).pause()
    house.tell("cancel_request", CancelRequest(run_id=run.spec.run_id))
    house.pass_time(run.stop_s + 60)
    assert len(house.node.runs) == 1
    house.node.runs.get((run.spec.run_id, 1)).resume()
    house.pass_time(run.stop_s + 1)
    assert house.edge.ending(run.spec.run_id)[0] == "cancelled"


def test_a_program_that_is_given_up_may_still_run() -> None:
    house = House()
    house.adapter.stops = False
    run = house.begin(limits=Limits(run_s=5))
    run.sink.emit([events.started("hand", "t", pid=7)])
    house.pass_time(run.stop_s + 8)
    kind, outcome = house.edge.ending(run.spec.run_id)
    assert (kind, outcome.code, outcome.processes_left) == ("failed", "run_timeout", -1)


def test_a_run_cancelled_before_the_record_has_it_never_starts() -> None:
    house = House()
    house.record.hold = True
    request = house.request()
    house.tell("run_request", request)
    house.tell("cancel_request", CancelRequest(run_id=request.run_id))
    house.record.commit()
    house.pair.pump()
    assert house.adapter.runs == []
    assert house.edge.ending(request.run_id)[0] == "cancelled"


def test_nothing_is_emitted_after_the_ending() -> None:
    house = House()
    run = house.begin()
    run.end()
    run.say("late")
    house.pair.pump()
    assert house.edge.seen(run.spec.run_id) == ["1:started", "2:completed"]


@pytest.mark.unhandled_errors_allowed
def test_faults_of_an_adapter_end_the_run_as_adapter_error() -> None:
    house = House()
    house.adapter.fails = RuntimeError("boom")
    request = house.request()
    house.tell("run_request", request)
    assert house.edge.ending(request.run_id)[1].code == "adapter_error"
    house.adapter.fails = None
    run = house.begin()
    run.finished.errback(ValueError("boom"))
    house.pair.pump()
    assert house.edge.ending(run.spec.run_id)[1].code == "adapter_error"
    run = house.begin()
    run.finished.callback(("nonsense", None))
    house.pair.pump()
    assert house.edge.ending(run.spec.run_id)[1].code == "adapter_error"
    run = house.begin()
    run.finished.errback(UpstreamError("busy", status=503))
    house.pair.pump()
    assert house.edge.ending(run.spec.run_id)[1].upstream_status == 503
    assert not house.node.runs


@pytest.mark.parametrize("limits, code, after_s", [
    ({"run_s": 5}, "run_timeout", 5), ({"first_output_s": 3}, "first_output_timeout", 3),
    ({"silence_s": 4}, "idle_timeout", 4)])
def test_time_limits_end_a_run_with_their_own_code(limits, code, after_s) -> None:
    house = House()
    run = house.begin(limits=Limits(**limits))
    if "silence_s" in limits:
        run.say("x")
    house.clock.pump([1] * (after_s - 1))
    assert run.stopped is None
    house.clock.pump([1] * 2)
    house.pair.pump()
    kind, outcome = house.edge.ending(run.spec.run_id)
    assert (kind, outcome.code) == ("failed", code)


def test_a_run_that_is_held_back_is_not_silent() -> None:
    house = House(connect=False)
    house.connect(limits=default_limits(run_window_bytes=4096))
    run = house.begin(limits=Limits(silence_s=3))
    run.say("x" * 10_000)
    house.clock.advance(0)
    assert run.paused
    house.clock.pump([1] * 10)
    assert run.stopped is None
    house.tell("event_ack", EventAck(run_id=run.spec.run_id, attempt=1, through_seq=2))
    assert not run.paused
    house.clock.pump([1] * 4)
    assert run.stopped.code == "idle_timeout"


def test_output_over_the_limit_is_cut_and_said() -> None:
    house = House()
    house.adapter.stops = False
    run = house.begin(limits=Limits(output_bytes=10))
    run.say("12345", "67890", "x")
    run.say("more")
    run.end("completed")
    house.pair.pump()
    assert house.edge.seen(run.spec.run_id) == ["1:started", "2:12345", "3:67890", "4:truncated", "5:failed"]
    _, outcome = house.edge.ending(run.spec.run_id)
    assert (outcome.code, outcome.totals.bytes, outcome.totals.events) == ("output_limit", 10, 4)


def test_input_goes_to_the_execution() -> None:
    house = House()
    run = house.begin()
    house.tell("run_input", RunInput(run_id=run.spec.run_id, data=b"x"))
    house.tell("run_input", RunInput(run_id=run.spec.run_id, end=True))
    house.tell("run_input", RunInput(run_id=run.spec.run_id, data=b"late"))
    assert run.input == [(b"x", False), (b"", True)]


def test_a_link_that_goes_stops_nothing_and_the_rest_is_sent_when_it_is_back() -> None:
    house = House()
    run = house.begin()
    run.say("a")
    house.pair.pump()
    house.pair.cut()
    run.say("b")
    run.end()
    house.edge.got.clear()
    house.edge.committed = 2
    house.connect()
    (report,) = house.edge.of("runs_report")[0].runs
    assert (report.first_unacked, report.last_spooled, report.open) == (1, 4, False)
    assert house.edge.seen(run.spec.run_id) == ["3:b", "4:completed"]
    house.tell("event_ack", EventAck(run_id=run.spec.run_id, attempt=1, through_seq=4))
    assert not len(house.node.spool)


def test_an_open_run_without_events_is_reported_open() -> None:
    house = House()
    house.tell("run_request", house.request())
    house.pair.cut()
    house.connect()
    (report,) = house.edge.of("runs_report")[-1].runs
    assert (report.open, report.first_unacked, report.last_spooled) == (True, 1, 0)


def test_no_event_is_sent_before_the_verdicts() -> None:
    house = House()
    run = house.begin()
    house.pair.cut()
    house.edge.got.clear()
    house.edge.answers = False
    house.connect()
    run.say("early")
    house.pair.pump()
    assert house.edge.of("event_batch") == []
    house.edge.committed = 1
    house.edge.answer()
    house.pair.pump()
    assert house.edge.seen(run.spec.run_id) == ["2:early"]


@pytest.mark.parametrize("verdict, code, seen", [
    (VERDICT_UNKNOWN, "node_lost", []), (VERDICT_FENCED, "node_lost", ["2:a", "3:failed"]),
    (VERDICT_CANCEL, "cancelled", ["2:a", "3:cancelled"])])
def test_the_verdict_decides_on_a_run_that_comes_back(verdict, code, seen) -> None:
    house = House()
    run = house.begin()
    house.pair.cut()
    run.say("a")
    house.edge.got.clear()
    house.edge.verdict, house.edge.committed = verdict, 1
    house.connect()
    assert run.stopped.code == code
    assert house.edge.seen(run.spec.run_id) == seen
    assert not house.node.runs
    assert bool(len(house.node.spool)) is (verdict != VERDICT_UNKNOWN)


def test_what_the_edge_asks_for_again_is_sent_again() -> None:
    house = House()
    run = house.begin()
    run.say("a")
    run.say("b")
    house.pair.pump()
    house.edge.got.clear()
    house.tell("resend", Resend(run_id=run.spec.run_id, attempt=1, from_seq=2))
    assert house.edge.seen(run.spec.run_id) == ["2:a", "3:b"]


@pytest.mark.parametrize("kind, word", [
    ("resend", Resend(attempt=1, from_seq=2)),      # acknowledged, and gone
    ("event_ack", EventAck(attempt=1, through_seq=4))])                 # never sent
def test_a_word_that_cannot_be_true_ends_the_link_and_the_report_of_the_next_one_tells(kind, word) -> None:
    house = House()
    run = house.begin()
    run.say("a")
    house.pair.pump()
    run.say("b")
    house.pair.pump()
    house.tell("event_ack", EventAck(run_id=run.spec.run_id, attempt=1, through_seq=2))
    word.run_id = run.spec.run_id
    house.tell(kind, word)
    assert house.edge.link is None and house.node.link is None
    run.say("c")
    house.connect()
    told = house.edge.of("runs_report")[-1].runs[0]
    assert (told.first_unacked, told.last_spooled, told.open) == (3, 4, True)


def test_the_report_comes_in_pages() -> None:
    house = House(config(concurrency=3000))
    for _ in range(1500):
        house.edge.link.send("run_request", house.request())
    house.pair.pump()
    house.pair.cut()
    house.edge.got.clear()
    house.connect()
    assert [(len(page.runs), page.last) for page in house.edge.of("runs_report")] == [(1000, False), (500, True)]


def test_what_a_run_tells_in_one_turn_is_one_batch_with_its_ending() -> None:
    house = House()
    run = house.begin()
    run.say("a")
    run.say("b")
    run.end()
    house.pair.pump()
    last = house.edge.of("event_batch")[-1]
    assert [event.WhichOneof("kind") for event in last.events] == ["output", "output", "completed"]
    assert (last.first_seq, last.events[-1].completed.totals.events) == (2, 3)


def test_what_is_too_much_for_a_window_pauses_its_run_within_the_turn() -> None:
    house = House()
    run = house.begin()
    for _ in range(3):
        run.say("x" * 400_000)
    assert run.paused


def test_windows_hold_runs_back_and_let_them_go_at_half() -> None:
    house = House(connect=False)
    house.connect(limits=default_limits(run_window_bytes=4096, link_window_bytes=8192))
    one, other = house.begin(), house.begin()
    one.say("x" * 6500)
    house.clock.advance(0)
    assert one.paused and not other.paused
    other.say("y" * 1800)
    house.clock.advance(0)
    assert one.paused and other.paused
    house.tell("event_ack", EventAck(run_id=one.spec.run_id, attempt=1, through_seq=2))
    assert not one.paused and not other.paused


def test_draining_refuses_new_runs_and_is_told() -> None:
    house = House()
    house.tell("node_command_request", NodeCommandRequest(command_id="1", line="drain"))
    assert house.edge.of("node_status")[-1].draining
    house.tell("run_request", house.request())
    assert house.edge.of("run_rejected")[0].code == "draining"
    house.tell("node_command_request", NodeCommandRequest(command_id="2", name="undrain"))
    house.begin()


@pytest.mark.parametrize("line", ["status", "capabilities", "labels", "runs", "version", "runs --limit 5"])
def test_commands_answer_with_json(line) -> None:
    house = House()
    house.tell("node_command_request", NodeCommandRequest(command_id="7", line=line))
    (answer,) = house.edge.of("node_command_response")
    assert (answer.command_id, answer.ok) == ("7", True)
    assert msgspec.json.decode(answer.result) is not None


@pytest.mark.parametrize("fields", [{"line": "nonsense"}, {"line": ""}, {"name": "runs", "arguments": b"[]"},
                                    {"line": "runs --limit 0"}, {"line": "runs --limit x"}])
def test_commands_that_are_not_understood_are_typed_errors(fields) -> None:
    house = House()
    house.tell("node_command_request", NodeCommandRequest(command_id="7", **fields))
    (answer,) = house.edge.of("node_command_response")
    assert (answer.ok, answer.code) == (False, "invalid_request")
    assert answer.message


def test_a_change_of_health_is_a_new_status() -> None:
    house = House()
    house.adapter.health = {"t": "The server does not answer."}
    house.clock.advance(15)
    house.pair.pump()
    (one,) = house.edge.of("node_status")[-1].adapters[0].targets
    assert (one.ready, one.detail) == (False, "The server does not answer.")
    house.clock.advance(15)
    house.pair.pump()
    assert len(house.edge.of("node_status")) == 2


def test_a_backend_that_is_away_is_looked_for_more_often_than_one_that_is_there() -> None:
    house = House()

    def pass_time(seconds: int) -> None:
        for _ in range(seconds):
            house.clock.advance(1)
            house.pair.pump()

    house.adapter.health = {"t": "The server does not answer."}
    pass_time(14)
    assert len(house.edge.of("node_status")) == 1
    pass_time(1)
    house.adapter.health = {}
    pass_time(3)
    assert [status.adapters[0].targets[0].ready for status in house.edge.of("node_status")] == [True, False, True]


def test_a_slow_check_does_not_hold_the_status_back() -> None:
    house = House(connect=False)
    original = house.factory.build

    def build(targets, tools):
        adapter = original(targets, tools)
        adapter.check = Deferred
        return adapter

    house.factory.build = build
    house.connect()
    assert house.edge.of("node_status") == []
    house.clock.advance(2)
    house.pair.pump()
    (one,) = house.edge.of("node_status")[0].adapters[0].targets
    assert not one.ready
    house.clock.advance(10)
    house.pair.pump()


def test_a_stop_ends_the_runs_and_waits_for_their_acknowledgement() -> None:
    house = House()
    run = house.begin()
    stopped = house.node.stopService()
    house.pair.pump()
    kind, outcome = house.edge.ending(run.spec.run_id)
    assert (kind, outcome.code, outcome.retryable) == ("failed", "node_restarted", True)
    assert house.edge.of("node_status")[-1].draining
    house.tell("run_request", house.request())
    assert house.edge.of("run_rejected")[0].code == "draining"
    assert not stopped.called
    house.tell("event_ack", EventAck(run_id=run.spec.run_id, attempt=1, through_seq=2))
    assert stopped.called
    assert house.adapter.closed == 1
    assert [call for call in house.clock.getDelayedCalls() if call.getTime() > 60] == []


def test_a_stop_without_a_link_does_not_wait_for_it() -> None:
    house = House()
    house.begin()
    house.pair.cut()
    assert house.node.stopService().called


def test_a_ready_file_that_cannot_be_written_stops_nothing(tmp_path) -> None:
    Lifecycle(state=str(tmp_path / "gone")).configured(SimpleNamespace(peer_id="edge", epoch=1))
