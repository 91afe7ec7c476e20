"""Requests to backends: Twisted's Agent without redirects, proxies or compression, on kept connections of our own pool."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.endpoints import HostnameEndpoint, TCP4ClientEndpoint, wrapClientTLS
from twisted.internet.interfaces import IConsumer
from twisted.internet.ssl import optionsForClientTLS
from twisted.python.failure import Failure
from twisted.web.client import URI, Agent, HTTPConnectionPool
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory, IBodyProducer
from zope.interface import implementer

from iop.adapters.wire.connection import ClosedWhileKept, GuardedEndpoint, Reading
from iop.adapters.wire.exchange import Exchange, Receiver, reasons
from iop.errors import IOPError

# llama.cpp's server and uvicorn (vLLM) close what was idle for 5 s; a request must not meet that close half-way.
KEPT_S = 4
CONNECTIONS_PER_HOST = 64


@implementer(IBodyProducer)
class _Body:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.length = len(data)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        consumer.write(self._data)
        return succeed(None)

    def pauseProducing(self) -> None:
        """It has been written at once."""

    resumeProducing = stopProducing = pauseProducing


@implementer(IAgentEndpointFactory)
class _Endpoints:
    def __init__(self, reactor: Any, connect_s: float, reading: Reading) -> None:
        self._reactor = reactor
        self._connect_s = connect_s
        self._reading = reading

    def endpointForURI(self, uri: URI) -> GuardedEndpoint:
        host = uri.host.decode("ascii")
        if host.replace(".", "").isdigit():     # Agent would resolve an address in a thread
            endpoint: Any = TCP4ClientEndpoint(self._reactor, host, uri.port, timeout=self._connect_s)
        else:
            endpoint = HostnameEndpoint(self._reactor, host, uri.port, timeout=self._connect_s)
        if uri.scheme == b"https":
            endpoint = wrapClientTLS(optionsForClientTLS(host), endpoint)
        return GuardedEndpoint(endpoint, self._reading)


class HttpClient:
    """The connections of one adapter."""

    def __init__(self, reactor: Any, clock: Any, *, connect_s: float = 5.0) -> None:
        self._clock = clock
        self._reading = Reading()
        self._pool = HTTPConnectionPool(reactor, persistent=True)
        self._pool.cachedConnectionTimeout = KEPT_S
        self._pool.maxPersistentPerHost = CONNECTIONS_PER_HOST
        self._pool.retryAutomatically = False    # it would not send a body again; see `again` below
        self._agent = Agent.usingEndpointFactory(reactor, _Endpoints(reactor, connect_s, self._reading), self._pool)

    def ask(self, method: bytes, url: str, headers: dict[str, str], body: bytes | None, receiver: Receiver, *,
            first_byte_s: float, first_token_s: float, idle_s: float, again: bool = True) -> Exchange:
        """Send a request; everything that follows is told to the receiver, at the earliest in this very call.

        `again`: send it once more where it met the close of a connection that had been kept, so that most likely nobody
        has read it. The body is JSON unless the headers name its content type.
        """
        exchange = Exchange(receiver, self._clock, self._reading, first_byte_s=first_byte_s, first_token_s=first_token_s,
                            idle_s=idle_s)
        sent = Headers({"User-Agent": ["iop"], "Accept-Encoding": ["identity"]})
        if body is not None:
            sent.setRawHeaders("Content-Type", ["application/json"])
        for name, value in headers.items():
            sent.setRawHeaders(name, [value])

        def request() -> Deferred[Any]:
            asked = self._agent.request(method, url.encode("ascii"), sent, _Body(body) if body is not None else None)
            return asked.addErrback(met_a_close) if again else asked

        def met_a_close(failure: Failure) -> Any:
            return request() if any(isinstance(reason, ClosedWhileKept) for reason in reasons(failure)) else failure

        exchange.begin(request())
        return exchange

    def fetch(self, url: str, headers: dict[str, str], body: bytes | None = None, *, within_s: float = 5.0,
              limit_bytes: int = 4 * 1024 * 1024) -> Deferred[tuple[int, bytes]]:
        """A small reply, whole: (status, body). Fails with UpstreamError or TooLarge; cancelling closes the connection."""
        whole = _Whole(limit_bytes)
        exchange = self.ask(b"GET" if body is None else b"POST", url, headers, body, whole,
                            first_byte_s=within_s, first_token_s=within_s, idle_s=within_s)
        whole.attach(exchange, self._clock.callLater(within_s, exchange.abort, IOPError(f"No answer within {within_s:g} s.")))
        return whole.done

    def close(self) -> Deferred[Any]:
        """Close the idle connections; fires when they are closed."""
        return self._pool.closeCachedConnections()


class _Whole:
    """Collects a reply."""

    def __init__(self, limit_bytes: int) -> None:
        self.done: Deferred[tuple[int, bytes]] = Deferred(self._cancelled)
        self._limit = limit_bytes
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
