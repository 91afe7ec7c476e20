"""Any bytes, cut anywhere: an answer or a close, never a fault, and one meaning however they are cut."""

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.logger import capturedLogs

from iop.keys import KeyRing
from iop.testing.web import Wire
from iop.web.admission import Admission
from iop.web.responses import json_response
from iop.web.route import PUBLIC, Route, RouteTable
from iop.web.site import Site

PIECES = st.sampled_from([
    b"GET /a HTTP/1.1\r\n", b"POST /a HTTP/1.1\r\n", b"GET /a HTTP/1.0\r\n", b"Host: localhost\r\n", b"Content-Length: 3\r\n",
    b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"Connection: close\r\n",
    b"\r\n", b"abc", b"3\r\nabc\r\n", b"0\r\n\r\n", b"ffffffffff\r\n", b" folded\r\n", b"\n", b"\x00",
    b"Content-Encoding: br\r\n"])
BYTES = st.lists(st.one_of(PIECES, st.binary(max_size=20)), max_size=25).map(b"".join)
WHOLE = b"".join([
    b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
    b"POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n1\r\nf\r\n0\r\n\r\n",
    b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n"])


async def _echo(request):
    return json_response({"body": request.body.decode("latin-1")})


def _wire():
    table = RouteTable([Route(method, "/a", PUBLIC, _echo, "", body_limit=100) for method in ("GET", "POST")])
    return Wire(Site(Admission(table, lambda: KeyRing([])), Clock()))


def _fed(data, cuts):
    wire, start = _wire(), 0
    for cut in [*sorted(cuts), len(data)]:
        wire.send(data[start:cut])
        start = cut
    return wire


@settings(max_examples=300, deadline=None)
@given(BYTES, st.sets(st.integers(0, 400), max_size=5))
def test_any_bytes_are_answered_or_closed_without_a_fault(data, cuts):
    with capturedLogs() as logged:
        wire = _fed(data, {min(cut, len(data)) for cut in cuts})
    assert [event for event in logged if "log_failure" in event] == []
    assert wire.received[:9] in (b"", b"HTTP/1.1 ")
    wire.leave()


@settings(max_examples=100, deadline=None)
@given(st.sets(st.integers(0, len(WHOLE)), max_size=8))
def test_it_means_the_same_however_it_is_cut(cuts):
    wire = _fed(WHOLE, cuts)
    assert [wire.answer().body for _ in range(3)] == [b'{"body":"abc"}', b'{"body":"def"}', b'{"body":""}']
    assert wire.answer().status == 404
    assert not wire.received
