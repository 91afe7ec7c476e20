"""A site with a few routes over a memory wire, and a stream that a test feeds."""

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

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
