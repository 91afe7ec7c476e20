"""The listening side of links: lets connections in, greets them, counts them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.interfaces import IAddress, IDelayedCall, IReactorTime
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from iop.errors import IOPError
from iop.interfaces import IGreeter, ILinkHandler
from iop.link.errors import LinkRefused, RemoteProtocolError
from iop.link.gate import Gate, source_of
from iop.link.limits import default_limits
from iop.link.peers import Peers
from iop.link.protocol import LinkProtocol
from iop.link.seal import DAMAGED
from iop.link.session import LISTENER, PROTOCOL, Session
from iop.link.sweep import Sweep
from iop.proto.link_pb2 import Hello, LinkLimits, Welcome

HELLO_S = 5.0                        # from the connection to its Hello, TLS included; in all, not since the last byte
GREETING_S = 5.0                     # from Hello to Welcome, which is our own time
RETRY_S = 60.0                       # for those who are refused without a time of their own

_PEER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(slots=True)
class _Arrival:
    """A connection that is not greeted yet."""

    source: str | None
    deadline: IDelayedCall
    greeting: Deferred[None] | None = None


class LinkListener(Factory):
    """The factory to listen with. `refused` and `protocol_errors` count by code, for metrics to read."""

    log = Logger()
    noisy = False

    def __init__(self, peer_id: str, greeter: IGreeter, peers: Peers, clock: IReactorTime,
                 limits: LinkLimits | None = None) -> None:
        self.peer_id = peer_id
        self.limits = limits or default_limits()
        self.refused: Counter[str] = Counter()
        self.protocol_errors: Counter[str] = Counter()
        self._greeter = greeter
        self._peers = peers
        self._clock = clock
        self._gate = Gate(clock.seconds)
        self._sweep = Sweep(clock)
        self._arrivals: dict[LinkProtocol, _Arrival] = {}
        self._links: set[LinkProtocol] = set()
        self._stopping: dict[LinkProtocol, Deferred[None]] = {}
        self._stopped = False

    def buildProtocol(self, addr: IAddress | None) -> LinkProtocol | None:
        source = source_of(getattr(addr, "host", "127.0.0.1"))
        code = "stopping" if self._stopped else self._gate.enter(source)
        if code:
            self.refused[code] += 1
            self.log.debug("a connection from {source} is turned away: {code}", source=source, code=code)
            return None
        link = LinkProtocol(Session(LISTENER, self.limits), self, self._clock)
        link.factory = self
        self._arrivals[link] = _Arrival(source, self._clock.callLater(HELLO_S, self._late, link))
        return link

    def stop(self, code: str = "stopping", message: str = "This side is stopping.") -> Deferred[Any]:
        """Take no more links and close those that stand; fires when all are gone (5 s at most)."""
        self._stopped = True
        for link in [*self._arrivals, *self._links]:
            self._stopping[link] = Deferred()
        gone = DeferredList(list(self._stopping.values()))
        for link in list(self._stopping):
            if link in self._arrivals:
                link.refuse(code, message, 0.0)
            else:
                link.close(code, message)
        return gone

    # --- Host -----------------------------------------------------------------------------------------------------

    def link_opened(self, link: LinkProtocol) -> None:
        """The dialer speaks first."""

    def greeting_received(self, link: LinkProtocol, kind: str, message: Hello) -> None:
        arrival = self._arrivals[link]
        arrival.deadline.reset(GREETING_S)
        arrival.greeting = Deferred.fromCoroutine(self._greet(link, message))

    def protocol_broken(self, link: LinkProtocol, error: RemoteProtocolError) -> None:
        self.protocol_errors[error.code] += 1
        self.log.warn("{peer} at {remote} broke the protocol ({code}): {reason}", peer=link.peer_id or "a stranger",
                      remote=link.remote, code=error.code, reason=error.message)
        arrival = self._arrivals.get(link)
        if arrival is not None and error.code == DAMAGED:
            link.abort(error)            # not its fault: a Reject would keep it away for a minute
        elif arrival is not None:
            self._gate.punish(arrival.source, error.code)
            link.refuse(error.code, error.message, RETRY_S)

    def link_closed(self, link: LinkProtocol, reason: IOPError, failure: Failure | None) -> None:
        arrival = self._arrivals.pop(link, None)
        if arrival is not None:
            self._left(arrival)
            if failure is not None and not link.opened:
                self.protocol_errors["tls_failed"] += 1
                self._gate.punish(arrival.source, "tls_failed")
            self.log.info("{remote} left before it was greeted: {reason}", remote=link.remote, reason=reason.message)
        else:
            self._links.discard(link)
            self._peers.leave(link.peer_id, link)
            self._sweep.discard(link)
            self.log.info("the link of {peer} at {remote} is down: {reason}", peer=link.peer_id, remote=link.remote,
                          reason=reason.message)
        waiting = self._stopping.pop(link, None)
        if waiting is not None:
            waiting.callback(None)

    # --- greeting -------------------------------------------------------------------------------------------------

    async def _greet(self, link: LinkProtocol, hello: Hello) -> None:
        try:
            _check_hello(hello)
            handler = await maybeDeferred(self._greeter.greet, hello, link.remote)
            await self._peers.admit(hello.peer_id)
            if link in self._arrivals and not self._stopped:
                self._welcome(link, hello, handler)
        except IOPError as error:
            self._refuse(link, hello, error)
        except Exception:
            self.log.failure("greeting {peer} at {remote} failed", peer=hello.peer_id, remote=link.remote)
            self._refuse(link, hello, LinkRefused("The other side failed inside; its log has the details.",
                                                  code="internal_error"))

    def _welcome(self, link: LinkProtocol, hello: Hello, handler: ILinkHandler) -> None:
        epoch = self._peers.join(hello.peer_id, link)
        self._left(self._arrivals.pop(link))
        self._links.add(link)
        link.peer_id = hello.peer_id
        link.send("welcome", Welcome(peer_id=self.peer_id, epoch=epoch, limits=self.limits,
                                     protocol=min(hello.protocol, PROTOCOL)))
        self._sweep.add(link)
        self.log.info("{peer} at {remote} is linked (epoch {epoch}, version {version})", peer=hello.peer_id,
                      remote=link.remote, epoch=epoch, version=hello.version)
        link.start(handler, hello.peer_id, epoch)

    def _refuse(self, link: LinkProtocol, hello: Hello, error: IOPError) -> None:
        self.refused[error.code] += 1
        arrival = self._arrivals.get(link)
        if arrival is not None:
            self._gate.punish(arrival.source, error.code)
        self.log.warn("{peer} at {remote} is refused ({code}): {reason}", peer=hello.peer_id, remote=link.remote,
                      code=error.code, reason=error.message)
        link.refuse(error.code, error.message, getattr(error, "retry_after_s", 0.0) or RETRY_S)

    def _late(self, link: LinkProtocol) -> None:
        """The deadline before Welcome has passed."""
        error = RemoteProtocolError(f"No {'greeting' if self._arrivals[link].greeting else 'Hello'} within "
                                    f"{HELLO_S:g} s.", code="handshake_timeout")
        self.protocol_broken(link, error)
        if not link.opened:
            link.abort(error)        # a Reject would wait for a TLS handshake that does not come

    def _left(self, arrival: _Arrival) -> None:
        self._gate.leave(arrival.source)
        if arrival.deadline.active():
            arrival.deadline.cancel()


def _check_hello(hello: Hello) -> None:
    if hello.protocol < 1:
        raise LinkRefused(f"Protocol {hello.protocol} is not spoken here; {PROTOCOL} is.", code="protocol_version")
    if _PEER_ID.fullmatch(hello.peer_id) is None:
        raise LinkRefused("A peer's id has letters, digits and . _ -, at most 64.", code="invalid_hello")
