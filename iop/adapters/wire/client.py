"""Requests to backends, without redirects, proxies or compression, on kept connections of our own pool."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.protocol import Factory
from twisted.internet.ssl import optionsForClientTLS

from iop.adapters.wire.connection import Connection
from iop.adapters.wire.exchange import Exchange, Receiver
from iop.adapters.wire.transport import direct_endpoint
from iop.addresses import address_of, is_never_backend
from iop.errors import IOPError, UpstreamError
from iop.headers import Headers

# llama.cpp's server and uvicorn (vLLM) close what was idle for 5 s; a request must not meet that close half-way.
KEPT_S = 4
CONNECTIONS_PER_HOST = 64

Key = tuple[str, str, int]       # scheme, host, port


class Place(NamedTuple):
    """A URL, taken apart: who is connected to, and the lines of a request's head that follow from it."""

    key: Key
    target: str
    host: str


@lru_cache(256)
def place_of(url: str) -> Place:
    """Raises ValueError for what cannot stand in a request's head."""
    parts = urlsplit(url)
    if not url.isascii() or not url.isprintable() or " " in url or not parts.hostname:
        raise ValueError(f"{url[:100]!r} is no URL of a backend.")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Place((parts.scheme, parts.hostname, port), target, parts.netloc.rpartition("@")[2])


def request_bytes(method: bytes, place: Place, headers: dict[str, str], body: bytes | None) -> bytes:
    """A whole request. The body is JSON unless the headers name its content type."""
    head = _head(method, place, tuple(headers.items()), body is not None)
    return head + b"\r\n" if body is None else b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body)


@lru_cache(256)
def _head(method: bytes, place: Place, headers: tuple[tuple[str, str], ...], with_body: bool) -> bytes:
    """All of it but its length: of a target it is mostly the same."""
    lines = {"host": place.host, "user-agent": "iop", "accept-encoding": "identity"}
    if with_body:
        lines["content-type"] = "application/json"
    lines |= {name.lower(): value for name, value in headers}
    if with_body:
        lines.pop("content-length", None)
    head = "".join([f"{name}: {' '.join(value.split())}\r\n" for name, value in lines.items()])
    return b"%b %b HTTP/1.1\r\n%b" % (method, place.target.encode("ascii"), head.encode("utf-8"))


class _Once(Factory):
    """Of one connection: as connectProtocol's, but without two lines in the log for each."""

    noisy = False

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def buildProtocol(self, _addr: Any) -> Connection:
        return self._connection


class HttpClient:
    """The connections of one adapter."""

    def __init__(self, reactor: Any, clock: Any, *, connect_s: float = 5.0) -> None:
        self._reactor = reactor
        self._clock = clock
        self._connect_s = connect_s
        self._free: dict[Key, list[Connection]] = {}
        self._closing: dict[Connection, Deferred[None]] = {}
        self._sweep: Any = None
        self._closed = False
        self._servers: dict[Key, str] = {}

    def ask(self, method: bytes, url: str, headers: dict[str, str], body: bytes | None, receiver: Receiver, *,
            first_byte_s: float, first_token_s: float, idle_s: float, again: bool = True) -> Exchange:
        """Send a request; everything that follows is told to the receiver, at the earliest in this very call.

        `again`: send it once more where it met the close of a connection that had been kept, so that most likely nobody
        has read it.
        """
        place = place_of(url)
        exchange = Exchange(receiver, self._clock, first_byte_s=first_byte_s, first_token_s=first_token_s, idle_s=idle_s)
        exchange.begin(lambda: self._take(place.key), request_bytes(method, place, headers, body), again)
        return exchange

    def fetch(self, url: str, headers: dict[str, str], body: bytes | None = None, *, within_s: float = 5.0,
              limit_bytes: int = 4 * 1024 * 1024) -> Deferred[tuple[int, bytes]]:
        """A small reply, whole: (status, body). Fails with UpstreamError or TooLarge; cancelling closes the connection."""
        whole = _Whole(limit_bytes, partial(self._servers.__setitem__, place_of(url).key))
        exchange = self.ask(b"GET" if body is None else b"POST", url, headers, body, whole,
                            first_byte_s=within_s, first_token_s=within_s, idle_s=within_s)
        whole.attach(exchange, self._clock.callLater(within_s, exchange.abort, IOPError(f"No answer within {within_s:g} s.")))
        return whole.done

    def server(self, url: str) -> str | None:
        """What the backend there called itself (its Server header) when something was last fetched; None before."""
        return self._servers.get(place_of(url).key) if url else None

    # --- connections

    def _take(self, key: Key) -> Connection | Deferred[Connection]:
        """One that is free, the youngest, or a new one."""
        free = self._free.get(key)
        while free:
            connection = free.pop()
            if self._reactor.seconds() - connection.free_since < KEPT_S:
                return connection
            self._let_go(connection)
        return self._connect(key)

    def _connect(self, key: Key) -> Deferred[Connection]:
        scheme, host, port = key
        if host.replace(".", "").isdigit():     # else an address would be resolved, in a thread
            endpoint: Any = direct_endpoint(self._reactor, host, port, self._connect_s)
        else:
            endpoint = HostnameEndpoint(self._reactor, host, port, timeout=self._connect_s)
        if scheme == "https":
            endpoint = wrapClientTLS(optionsForClientTLS(host), endpoint)
        connecting: Deferred[Connection] = endpoint.connect(_Once(Connection(self, key)))
        return connecting.addCallback(_checked)

    def freed(self, connection: Connection) -> None:
        free = self._free.setdefault(connection.key, [])
        connection.free_since = self._reactor.seconds()
        free.append(connection)
        if self._closed:
            self._let_go(free.pop())
        elif len(free) > CONNECTIONS_PER_HOST:
            self._let_go(free.pop(0))
        elif self._sweep is None:
            self._sweep = self._reactor.callLater(KEPT_S, self._swept)

    def _swept(self) -> None:
        """Close what nobody has taken for so long: the oldest stand first."""
        self._sweep = None
        until = self._reactor.seconds() - KEPT_S
        for free in self._free.values():
            while free and free[0].free_since <= until:
                self._let_go(free.pop(0))
        oldest = min((free[0].free_since for free in self._free.values() if free), default=None)
        if oldest is not None:
            self._sweep = self._reactor.callLater(oldest - until, self._swept)

    def _let_go(self, connection: Connection) -> None:
        self._closing[connection] = Deferred()
        connection.abort(IOPError("The connection was kept for nobody."))

    def closed(self, connection: Connection) -> None:
        free = self._free.get(connection.key, [])
        if connection in free:                   # by its backend
            free.remove(connection)
        closing = self._closing.pop(connection, None)
        if closing is not None:
            closing.callback(None)

    def close(self) -> Deferred[Any]:
        """Close the free connections, now and from now on; fires when they are closed."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for free in self._free.values():
            while free:
                self._let_go(free.pop())
        return DeferredList(list(self._closing.values()))


def _checked(connection: Connection) -> Connection:
    """The node's policy has judged the URL's host; a name may still lead anywhere."""
    address = address_of(getattr(connection.transport.getPeer(), "host", ""))
    if address is not None and is_never_backend(address):
        error = UpstreamError(f"The backend's name leads to {address}, where no model backend may be.")
        connection.abort(error)
        raise error
    return connection


class _Whole:
    """Collects a reply."""

    def __init__(self, limit_bytes: int, served_by: Callable[[str], object]) -> None:
        self.done: Deferred[tuple[int, bytes]] = Deferred(self._cancelled)
        self._limit = limit_bytes
        self._served_by = served_by
        self._pieces: list[bytes] = []
        self._size = self._status = 0
        self._exchange: Exchange | None = None
        self._timer: Any = None
        self._over = False

    def attach(self, exchange: Exchange, timer: Any) -> None:
        self._exchange, self._timer = exchange, timer
        if self._over:
            timer.cancel()

    def _cancelled(self, done: object) -> None:
        if self._exchange is not None:
            self._exchange.abort(IOPError("The request was given up."))

    def reply_started(self, status: int, headers: Headers) -> None:
        self._status = status
        self._served_by((headers.getRawHeaders(b"server") or [b""])[0].decode("latin-1"))

    def bytes_received(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._limit and self._exchange is not None:
            self._exchange.abort(IOPError(f"The backend answered more than {self._limit} bytes, which is the limit here."))
        else:
            self._pieces.append(data)

    def read_finished(self) -> None:
        """Nothing to do: the end is all that counts."""

    def reply_ended(self, error: IOPError | None) -> None:
        self._over = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        if error is not None:
            self.done.errback(error)
        else:
            self.done.callback((self._status, b"".join(self._pieces)))
