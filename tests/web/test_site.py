"""The site: requests that are answered, and those that are refused before a body is read."""

import json

import pytest
from twisted.internet.interfaces import ITCPTransport
from twisted.internet.testing import StringTransport
from zope.interface import implementer


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


def test_json_of_an_error_is_the_contracts(world):
    error = json.loads(world.wire().call("GET", "/full").body)["error"]
    assert error == {"code": "no_node", "message": "Nobody is there.", "retryable": True,
                     "hint": "See `iop nodes`; a run that waits for a node can be submitted with a longer queue limit."}
