"""A request and its answer: faults, clients that leave, streams."""

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs

from iop.errors import NoNode

# --- handlers

def test_a_fault_is_told_by_its_id_alone(world):
    with capturedLogs() as logged:
        answer = world.wire().call("GET", "/broken")
    request_id = answer.headers["x-request-id"]
    assert answer.status == 500
    assert request_id in answer.json["error"]["message"]
    assert b"sauce" not in answer.body
    assert [event["id"] for event in logged if "log_failure" in event] == [request_id]


def test_a_client_that_leaves_cancels_its_handler(world):
    cancelled = []
    world.waiting = Deferred(lambda _: cancelled.append(True))
    wire = world.wire()
    wire.ask("GET", "/wait")
    wire.leave()
    assert cancelled == [True]
    assert not wire.received
    assert not world.site.channels


def test_a_head_request_has_the_headers_of_its_get(world):
    wire = world.wire()
    wire.ask("HEAD", "/open")
    assert b"Content-Length: " in wire.received
    assert wire.received.endswith(b"\r\n\r\n")


# --- streams

def test_a_stream_goes_out_as_it_arises_in_one_write_each_time(world):
    wire = world.wire()
    wire.ask("GET", "/stream")
    assert b"text/event-stream" in wire.received
    wire.streamed()
    world.source.feed(b"data: a\n\n", b"data: b\n\n")
    assert wire.received == b"12\r\ndata: a\n\ndata: b\n\n\r\n"
    world.source.feed(b"data: c\n\n", ended=True)
    assert wire.received.endswith(b"data: c\n\n\r\n0\r\n\r\n")
    assert world.source.closed
    wire.transport.clear()
    assert wire.call("GET", "/open").status == 200


def test_a_full_transport_pauses_the_stream_and_a_stalled_reader_is_closed(world):
    wire = world.wire()
    wire.ask("GET", "/stream")
    wire.streamed()
    wire.transport.producer.pauseProducing()
    world.source.feed(b"data: a\n\n")
    world.pass_time(500)
    assert not wire.received                     # no heartbeat either
    assert world.source.pieces == [b"data: a\n\n"]
    wire.transport.producer.resumeProducing()
    assert wire.streamed() == b"data: a\n\n"
    wire.transport.producer.pauseProducing()
    world.pass_time(601)
    assert wire.transport.aborted
    assert world.source.closed


def test_a_quiet_stream_has_a_heartbeat(world):
    wire = world.wire()
    wire.ask("GET", "/stream")
    wire.streamed()
    world.pass_time(14)
    assert not wire.received
    world.pass_time(2)
    assert wire.streamed() == b": ping\n\n"


def test_a_client_that_leaves_closes_the_source(world):
    wire = world.wire()
    wire.ask("GET", "/stream")
    wire.leave()
    assert world.source.closed
    world.source.callback()                      # a late word does nothing


def test_a_stream_to_an_old_client_ends_with_the_connection(world):
    wire = world.wire()
    wire.send(b"GET /stream HTTP/1.0\r\nx-api-key: " + world.key.encode() + b"\r\n\r\n")
    world.source.feed(b"data: a\n\n", ended=True)
    assert wire.received.endswith(b"\r\n\r\ndata: a\n\n")
    assert wire.transport.disconnecting


def test_a_source_that_breaks_breaks_the_connection(world):
    broken = Deferred()
    world.source.take = lambda limit: broken
    wire = world.wire()
    wire.ask("GET", "/stream")
    broken.errback(NoNode())
    assert wire.transport.aborted
    assert not wire.received.endswith(b"0\r\n\r\n")
