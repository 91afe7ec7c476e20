"""Lifecycle events at the management API."""

import pytest

from tests.edge.management import ids


def test_lifecycle_events_come_as_a_page(world):
    for number in range(5):
        world.edge.happened("node_up", node_id=f"n{number}", detail=b'{"why": "x"}')
    latest = world.call("GET", "/api/v1/events?limit=2").json
    assert ([event["id"] for event in latest["events"]], latest["next"]) == ([4, 5], 5)
    assert latest["events"][0]["type"] == "node_up"
    assert latest["events"][0]["detail"] == {"why": "x"}
    after = world.call("GET", "/api/v1/events?after=3").json
    assert [event["id"] for event in after["events"]] == [4, 5]
    assert world.call("GET", "/api/v1/events?after=5").json == {"events": [], "next": 5}


def test_lifecycle_events_stream_from_where_the_reader_was(world):
    for _ in range(600):
        world.edge.happened("node_up")
    wire = world.wire()
    wire.ask("GET", "/api/v1/events?after=0", Accept="text/event-stream", Last_Event_ID="2")
    world.edge.happened("node_down")
    assert ids(wire.streamed()) == list(range(3, 602))
    wire.leave()
    assert not world.edge.watchers


def test_a_stream_without_a_place_begins_now(world):
    world.edge.happened("node_up")
    wire = world.wire()
    wire.ask("GET", "/api/v1/events", Accept="text/event-stream")
    world.edge.happened("node_down")
    assert ids(wire.streamed()) == [2]


def test_a_reader_of_lifecycle_events_that_lags_far_reads_history(world):
    wire = world.wire()
    wire.ask("GET", "/api/v1/events", Accept="text/event-stream")
    wire.streamed()
    wire.transport.producer.pauseProducing()
    for _ in range(2500):
        world.edge.happened("node_up")
    wire.transport.producer.resumeProducing()
    assert ids(wire.streamed()) == list(range(1, 2501))


@pytest.mark.parametrize("place", ["x", "-1", "1.5", "9" * 30, "9" * 19, str(2 ** 63)])
def test_a_bad_place_among_lifecycle_events_is_refused(world, place):
    assert world.call("GET", f"/api/v1/events?after={place}").status == 400
    assert world.call("GET", "/api/v1/events", Accept="text/event-stream", Last_Event_ID=place).status == 400
