"""One connection: where its requests end, what it may hold, and how long it may take."""

import pytest

# --- framing: where one request ends must not be a matter of taste

@pytest.mark.parametrize("head", [
    b"Content-Length: 4\r\nContent-Length: 5",
    b"Content-Length: 4\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nContent-Length: 4",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding: xchunked",
    b"Content-Length: +4",
    b"Content-Length: -1",
    b"Content-Length: 4 4",
    b"Content-Length: 0x4",
    b"Content-Length : 4",
    b"Content-Length: 4\r\n folded",
    b"no colon here",
    b"Bad\x00Name: x",
    b"X: a\rb",
])
def test_an_ambiguous_head_is_refused_and_the_connection_closed(world, head):
    wire = world.wire()
    wire.send(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nx-api-key: " + world.key.encode() + b"\r\n" + head
              + b"\r\n\r\nabcdGET /open HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert wire.received.startswith(b"HTTP/1.1 400 ")
    assert wire.received.count(b"HTTP/1.1 ") == 1
    assert wire.closed or wire.channel.persistent is False
    assert not world.seen


@pytest.mark.parametrize("line", [b"GET /open HTTP/2.0", b"GET /open HTTP/1.2", b"GET /open", b"GET  /open HTTP/1.1",
                                  b"\x16\x03\x01\x02", b"GET /\xff HTTP/1.1"])
def test_an_unreadable_request_line_is_refused(world, line):
    wire = world.wire()
    wire.send(line + b"\r\nHost: localhost\r\n\r\n")
    assert wire.received.startswith(b"HTTP/1.1 400 ")
    assert wire.closed or wire.answer().status == 400


def test_a_chunked_body_is_read(world):
    wire = world.wire()
    wire.send(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nx-api-key: " + world.key.encode()
              + b"\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")
    assert wire.answer().json["body"] == "abc"


def test_what_follows_a_body_in_chunks_waits_for_its_answer(world):
    wire = world.wire()
    head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nx-api-key: " + world.key.encode()
    lines = b"\r\n\r\n" * 100
    wire.send(head + b"\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\nX: y\r\n\r\n" % (len(lines), lines)
              + head + b"\r\nContent-Length: 3\r\n\r\nabcGET  /open HTTP/1.1\r\n\r\n")
    assert [wire.answer().json["body"], wire.answer().json["body"]] == [lines.decode(), "abc"]
    assert wire.answer().status == 400           # two spaces, seen though it came with the others


@pytest.mark.parametrize("between", [b"0\r\n" + b"X: y\r\n" * 20_000, b"1;" + b"x" * 100_000])
def test_what_stands_beside_a_body_in_chunks_has_a_limit(world, between):
    wire = world.wire()
    wire.send(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nx-api-key: " + world.key.encode()
              + b"\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
    for start in range(0, len(between), 10_000):
        wire.send(between[start:start + 10_000])
    assert wire.answer().status == 400
    assert not world.seen


def test_an_upgrade_that_is_asked_for_is_passed_over(world):
    wire = world.wire()
    for _ in range(2):
        wire.ask("POST", "/echo", b"abc", Connection="Upgrade, HTTP2-Settings", Upgrade="h2c")
        assert wire.answer().json["body"] == "abc"


# --- limits

def test_a_body_announced_too_large_is_refused_before_it_comes(world):
    wire = world.wire()
    wire.send(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nx-api-key: " + world.key.encode()
              + b"\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n")
    assert b"100 Continue" not in wire.received
    assert wire.answer().status == 413
    wire.send(b"x" * 100_000)
    assert not world.seen
    assert not wire.received


def test_a_body_that_grows_too_large_in_chunks_is_refused(world):
    wire = world.wire()
    wire.send(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nx-api-key: " + world.key.encode()
              + b"\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(20):
        wire.send(b"64\r\n" + b"x" * 100 + b"\r\n")
    assert wire.answer().status == 413
    assert wire.transport.half_closed
    assert not world.seen


def test_an_expected_body_is_asked_for(world):
    wire = world.wire()
    wire.send(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nx-api-key: " + world.key.encode()
              + b"\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert wire.received == b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize("head", [b"".join(b"X-%d: y\r\n" % number for number in range(101)), b"X: " + b"y" * 8193 + b"\r\n",
                                  b"".join(b"X-%d: %b\r\n" % (number, b"y" * 8000) for number in range(9))])
def test_a_head_too_large_is_refused(world, head):
    wire = world.wire()
    wire.send(b"GET /open HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n")
    assert wire.answer().status in (400, 431)
    assert wire.closed


# --- deadlines, for the whole and not for the quiet

def test_a_head_that_drips_is_ended_after_ten_seconds(world):
    wire = world.wire()
    wire.send(b"GET /open HTTP/1.1\r\n")
    for number in range(9):
        wire.send(b"X-%d: y\r\n" % number)
        world.pass_time(1)
    assert not wire.closed
    world.pass_time(2)
    assert wire.answer().status == 408
    assert wire.closed


def test_a_body_that_drips_is_ended_after_thirty_seconds(world):
    wire = world.wire()
    wire.send(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nx-api-key: " + world.key.encode()
              + b"\r\nContent-Length: 900\r\n\r\n")
    for _ in range(29):
        wire.send(b"x")
        world.pass_time(1)
    assert not wire.closed
    world.pass_time(2)
    assert wire.answer().status == 408


def test_a_connection_that_says_nothing_is_closed_without_a_word(world):
    wire = world.wire()
    world.pass_time(11)
    assert wire.closed
    assert not wire.received


def test_a_site_that_ends_waits_until_whoever_waited_on_a_client_was_told(world):
    streaming, waiting, idle = world.wire(), world.wire(), world.wire()
    streaming.ask("GET", "/stream")
    waiting.ask("GET", "/wait")
    gone = []
    world.site.disconnect_all().addCallback(gone.append)
    for wire in (streaming, waiting, idle):
        assert wire.transport.aborted and not gone
        wire.leave()
    assert gone and world.source.closed
    world.site.disconnect_all().addCallback(gone.append)
    assert len(gone) == 2


def test_an_idle_connection_is_closed_and_then_aborted(world):
    wire = world.wire()
    wire.call("GET", "/open")
    world.pass_time(60)
    assert not wire.closed
    world.pass_time(20)
    assert wire.closed
    world.pass_time(70)
    assert wire.transport.aborted


def test_a_client_that_still_takes_a_long_answer_is_not_idle(world):
    wire = world.wire()
    wire.call("GET", "/open")
    wire.channel.pauseProducing()
    world.pass_time(500)
    assert not wire.closed
    world.pass_time(110)
    assert wire.closed


def test_one_who_is_refused_and_stays_is_aborted(world):
    wire = world.wire("")
    wire.send(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n")
    world.pass_time(3)
    assert wire.transport.aborted
