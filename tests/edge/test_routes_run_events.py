"""The events of a run at the management API: in pages, as a stream, and verified."""

import pytest
from twisted.internet.defer import Deferred

from iop import events
from iop.cli.client import parse_events
from iop.proto import run_pb2
from iop.testing.edge import script
from tests.edge.management import ids


def test_events_come_in_pages(world):
    world.edge.scripts["tiny"] = script(*(events.output(f"{number}") for number in range(5)))
    path = f"/api/v1/runs/{world.submitted()}/events"
    first = world.call("GET", path + "?limit=3").json
    assert [event["id"] for event in first["events"]] == ["1.1", "1.2", "1.3"]
    assert (first["next"], first["ended"]) == ("1.3", False)
    rest = world.call("GET", path + "?after=1.3").json
    assert [event["type"] for event in rest["events"]] == ["output", "output", "output", "completed"]
    assert (rest["next"], rest["ended"]) == ("1.7", True)
    assert world.call("GET", path + "?after=1.7").json == {"events": [], "next": "1.7", "ended": True}
    assert world.edge.last.cursors[-1].closed


def test_a_page_of_a_run_that_goes_on_has_not_ended(world):
    path = f"/api/v1/runs/{world.submitted()}/events"
    assert world.call("GET", path).json == {"events": [], "next": "", "ended": False}
    world.edge.last.start()
    assert world.call("GET", path).json["ended"] is False


@pytest.mark.parametrize("after", ["x", "1", "1.x", "-1.1", "1.1.1", "99999999999.1"])
def test_a_bad_place_is_refused(world, after):
    assert world.call("GET", f"/api/v1/runs/{world.submitted()}/events?after={after}").status == 400


def test_a_stream_is_live_and_ends_with_the_run(world):
    run_id = world.submitted()
    wire = world.wire()
    wire.ask("GET", f"/api/v1/runs/{run_id}/events", Accept="text/event-stream")
    assert b"text/event-stream" in wire.received
    wire.streamed()
    world.edge.last.start()
    world.edge.last.emit(events.output("a\r\n\u2028\x00"), events.output("b"))
    body = wire.streamed()
    assert ids(body) == ["1.1", "1.2", "1.3"]
    told = [event.data for event in parse_events(iter(body.splitlines(keepends=True)))]
    assert told[1]["text"] == "a\r\n\u2028\x00"
    assert set(told[1]) == {"id", "attempt", "seq", "at", "type", "channel", "text"}
    world.edge.last.end("completed")
    assert wire.received.endswith(b"\r\n0\r\n\r\n")
    assert not wire.closed


def test_the_fast_format_is_the_slow_one(world):
    plain = events.output("x\"\n", run_pb2.CHANNEL_STDERR)
    lossy = events.output("�", run_pb2.CHANNEL_STDOUT, exact=b"\xff")
    world.edge.scripts["tiny"] = script(plain, lossy)
    path = f"/api/v1/runs/{world.submitted()}/events"
    page = world.call("GET", path).json["events"]
    wire = world.wire()
    wire.ask("GET", path, Accept="text/event-stream")
    body = wire.streamed()
    assert [event.data for event in parse_events(iter(body.splitlines(keepends=True)))] == page
    assert page[2]["bytes_b64"] == "/w=="


def test_a_reader_continues_behind_what_it_has_seen(world):
    world.edge.scripts["tiny"] = script(events.output("a"), events.output("b"))
    path = f"/api/v1/runs/{world.submitted()}/events"
    wire = world.wire()
    wire.ask("GET", path + "?after=1.1", Accept="text/event-stream", Last_Event_ID="1.2")
    assert ids(wire.streamed()) == ["1.3", "1.4"]
    wire = world.wire()
    wire.ask("GET", path, Accept="text/event-stream", Last_Event_ID="1.4")
    assert wire.received.endswith(b"0\r\n\r\n")


def test_two_readers_share_one_formatting_and_lag_apart(world):
    run_id = world.submitted()
    fast, slow = world.wire(), world.wire()
    for wire in (fast, slow):
        wire.ask("GET", f"/api/v1/runs/{run_id}/events", Accept="text/event-stream")
        wire.streamed()
    slow.transport.producer.pauseProducing()
    world.edge.last.start()
    world.edge.last.emit(events.output("x"))
    assert ids(fast.streamed()) == ["1.1", "1.2"]
    assert not slow.received
    world.edge.last.emit(events.output("y"))
    slow.transport.producer.resumeProducing()
    assert ids(slow.streamed()) == ["1.1", "1.2", "1.3"]
    assert all(list(entry.dialects) == ["sse"] for entry in world.edge.last.entries)


def test_a_reader_that_leaves_ends_nothing_but_its_cursor(world):
    run_id = world.submitted()
    wire = world.wire()
    wire.ask("GET", f"/api/v1/runs/{run_id}/events", Accept="text/event-stream")
    wire.leave()
    assert world.edge.last.cursors[-1].closed
    assert not world.edge.last.cancels


def test_a_reader_waits_for_history(world):
    world.edge.scripts["tiny"] = script(events.output("a"))
    run_id = world.submitted()
    page = world.edge.last.lagging = Deferred()
    wire = world.wire()
    wire.ask("GET", f"/api/v1/runs/{run_id}/events", Accept="text/event-stream")
    assert wire.streamed() == b""
    page.callback(None)
    assert ids(wire.streamed()) == ["1.1", "1.2", "1.3"]


def test_a_run_is_verified(world):
    run_id = world.submitted()
    run = world.edge.last
    run.start()
    assert world.call("GET", f"/api/v1/runs/{run_id}/verify").json["whole"] is False
    run.emit(events.output("hello"))
    run.end("completed")
    found = world.call("GET", f"/api/v1/runs/{run_id}/verify").json
    assert (found["whole"], found["checked"], found["events"], found["bytes"], found["told"]) == (True, "numbers", 2, 5, None)
    assert world.call("GET", f"/api/v1/runs/{run_id}/verify", key=world.client).status == 404


def test_what_came_after_the_ending_is_read_apart_in_pages(world):
    run_id = world.submitted()
    run = world.edge.last
    run.end("failed")
    assert world.call("GET", f"/api/v1/runs/{run_id}/events?late=1").json == {"events": [], "next": "", "ended": True}
    run.late = [run_pb2.EventBatch(run_id=run_id, attempt=1, first_seq=first, events=[events.output(text) for text in texts])
                for first, texts in ((5, "abc"), (6, "bcd"))]
    told, after = [], ""
    while page := world.call("GET", f"/api/v1/runs/{run_id}/events?late=true&limit=2&after={after}").json["events"]:
        told += [event["id"] + event["text"] for event in page]
        after = page[-1]["id"]
    assert told == ["1.5a", "1.6b", "1.7c", "1.8d"]
    answer = world.call("GET", f"/api/v1/runs/{run_id}/events?late=1", accept="text/event-stream")
    assert answer.status == 400


def test_a_gap_names_the_first_that_is_missing_and_how_many(world):
    run_id = world.submitted()
    run = world.edge.last
    run.start()
    run._seq = 6
    run.emit(run_pb2.RuntimeEvent(gap=run_pb2.Gap(first_seq=2, reason="lost")))
    told = world.call("GET", f"/api/v1/runs/{run_id}/events?after=1.1").json["events"]
    assert told == [{"id": "1.7", "attempt": 1, "seq": 7, "at": None, "type": "gap", "first_seq": 2, "missing": 6,
                     "reason": "lost"}]
