"""The site: what is refused before a body is read, limits, deadlines, what a stream and a client that leaves do."""

import json

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import ITCPTransport
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import capturedLogs
from zope.interface import implementer

from iop.errors import NoNode
from iop.keys import SCOPES, KeyRing, make_key
from iop.testing.web import Wire
from iop.web.admission import Admission
from iop.web.responses import Response, StreamResponse, json_response
from iop.web.route import PUBLIC, Route, RouteTable
from iop.web.site import Site


class Source:
    """A stream that a test feeds."""

    heartbeat = b": ping\n\n"

    def __init__(self):
        self.pieces, self.ended, self.closed, self.callback = [], False, False, None

    def take(self, limit_bytes):
        pieces, self.pieces = self.pieces, []
        return pieces

    def notify(self, callback):
        self.callback = callback

    def feed(self, *pieces, ended=False):
        self.pieces += pieces
        self.ended = ended
        self.callback()

    def close(self):
        self.closed = True


class World:
    """A site with a few routes."""

    def __init__(self):
        self.clock, self.source, self.waiting, self.seen = Clock(), Source(), Deferred(), []
        key, self.key = make_key("api", "me", list(SCOPES))
        reader, self.reader = make_key("api", "reader", ["runs:read"])
        self.answered = []
        table = RouteTable([
            Route("GET", "/open", PUBLIC, self.echo, ""),
            Route("POST", "/echo", "runs:write", self.echo, "", body_limit=1000),
            Route("GET", "/things/{id}", "runs:read", self.echo, ""),
            Route("GET", "/v1/deep/{id...}", "models", self.echo, "", dialect="openai"),
            Route("GET", "/stream", "runs:read", self.stream, ""),
            Route("GET", "/wait", "runs:read", self.wait, ""),
            Route("GET", "/broken", "runs:read", self.broken, ""),
            Route("GET", "/full", "runs:read", self.full, ""),
        ])
        ring = KeyRing([key, reader])
        self.site = Site(Admission(table, lambda: ring, ["edge.example"]), self.clock, self)

    def http_answered(self, route, method, status, seconds):
        self.answered.append((route, status))

    def http_streaming(self, route, seconds):
        pass

    async def echo(self, request):
        self.seen.append(request)
        return json_response({"body": request.body.decode("latin-1"), "args": request.args, "who": request.principal.name})

    async def stream(self, request):
        return StreamResponse(self.source)

    async def wait(self, request):
        return Response(200, await self.waiting)

    async def broken(self, request):
        raise ValueError("the secret sauce")

    async def full(self, request):
        raise NoNode("Nobody is there.")

    def wire(self, key=None, **options):
        return Wire(self.site, self.key if key is None else key, **options)

    def pass_time(self, seconds):
        for _ in range(int(seconds)):
            self.clock.advance(1)
            self.site.sweep()


@pytest.fixture
def world():
    return World()


def test_a_request_is_answered_and_the_connection_kept(world):
    wire = world.wire()
    assert wire.call("POST", "/echo", b"hello").json["body"] == "hello"
    answer = wire.call("GET", "/things/a%2Fb")
    assert answer.json["args"] == {"id": "a/b"}
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-request-id"].startswith("req_")
    assert not wire.closed
    assert world.answered == [("/echo", 200), ("/things/{id}", 200)]


def test_small_writes_do_not_wait_for_the_clients_acknowledgement(world):
    @implementer(ITCPTransport)
    class Tcp(StringTransport):
        delays = True

        def setTcpNoDelay(self, enabled):
            self.delays = not enabled

    transport = Tcp()
    world.site.buildProtocol(None).makeConnection(transport)
    assert not transport.delays


def test_a_form_body_is_left_alone(world):
    wire = world.wire()
    wire.send(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nx-api-key: %b\r\nContent-Length: 3\r\n"
              b"Content-Type: application/x-www-form-urlencoded\r\n\r\na=b" % world.key.encode())
    assert wire.answer().json["body"] == "a=b"


def test_pipelined_requests_are_answered_in_order(world):
    wire = world.wire()
    wire.ask("POST", "/echo", b"1")
    wire.ask("POST", "/echo", b"2")
    assert [wire.answer().json["body"], wire.answer().json["body"]] == ["1", "2"]


@pytest.mark.parametrize(("method", "path", "status", "code"), [
    ("GET", "/nowhere", 404, "not_found"),
    ("GET", "/things", 404, "not_found"),
    ("GET", "/things/", 404, "not_found"),
    ("GET", "/things/%ff", 400, "invalid_request"),
    ("DELETE", "/echo", 405, "bad_method"),
    ("OPTIONS", "/echo", 405, "bad_method"),
    ("GET", "http://evil/open", 400, "invalid_request"),
    ("GET", "/full", 503, "no_node"),
])
def test_refusals_have_a_status_and_a_code(world, method, path, status, code):
    answer = world.wire().call(method, path)
    assert (answer.status, answer.code) == (status, code)
    assert "access-control-allow-origin" not in answer.headers


def test_what_helps_a_retry_and_a_method_is_told(world):
    assert world.wire().call("GET", "/full").headers["retry-after"] == "5"
    assert world.wire().call("DELETE", "/echo").headers["allow"] == "POST"


@pytest.mark.parametrize("headers", [
    "", "Authorization: Bearer nonsense", "Authorization: Basic abc", "x-api-key: '; drop table keys; --",
    "x-api-key: \xff\xfe", "Authorization: Bearer one\r\nx-api-key: other",
])
def test_without_a_known_key_nothing_is_served(world, headers):
    wire = world.wire("")
    wire.send(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n%b\r\n\r\n"
              % (headers + "\r\n" if headers else "").encode("latin-1").rstrip(b"\r\n"))
    answer = wire.answer()
    assert (answer.status, answer.code) == (401, "auth_failed")
    assert wire.transport.half_closed            # the 500 bytes were never waited for
    assert not world.seen


def test_a_key_without_the_scope_is_forbidden(world):
    assert world.wire(world.reader).call("GET", "/things/1").status == 200
    answer = world.wire(world.reader).call("POST", "/echo", b"x")
    assert (answer.status, answer.code) == (403, "forbidden")


def test_the_openai_dialect_tells_errors_its_way(world):
    answer = world.wire("").call("GET", "/v1/deep/a/b")
    assert answer.json["error"]["code"] == "invalid_api_key"
    assert set(answer.json["error"]) == {"message", "type", "param", "code"}
    assert world.wire().call("GET", "/v1/deep/a/b/c").json["args"] == {"id": "a/b/c"}


@pytest.mark.parametrize("host", ["localhost", "localhost:80", "127.0.0.1:7411", "[::1]:1", "EDGE.example:7411"])
def test_its_own_names_are_answered_to(world, host):
    assert world.wire(host=host).call("GET", "/open").status == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.2", "localhost.evil.example", ""])
def test_other_names_are_misdirected(world, host):
    assert world.wire(host=host).call("GET", "/open").status == 421


def test_a_request_needs_one_host(world):
    wire = world.wire()
    wire.send(b"GET /open HTTP/1.1\r\n\r\n")
    assert wire.answer().status == 400
    assert world.wire().call("GET", "/open", Host="localhost").status == 400


def test_an_encoded_body_is_refused(world):
    wire = world.wire()
    wire.ask("POST", "/echo", b"xxxx", Content_Encoding="gzip")
    assert wire.answer().status == 415


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


def test_json_of_an_error_is_the_contracts(world):
    error = json.loads(world.wire().call("GET", "/full").body)["error"]
    assert error == {"code": "no_node", "message": "Nobody is there.", "retryable": True,
                     "hint": "See `iop nodes`; a run that waits for a node can be submitted with a longer queue limit."}
