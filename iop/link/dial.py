"""The dialing side of a link: connects, says Hello, and comes back by itself.

The only module that knows ReconnectingClientFactory. Its delay runs from 0.5 to 30 s with jitter and begins anew only after a
Welcome; after a Reject the next try is 60 s away or more (30 s for duplicate_node).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionRefusedError, TimeoutError
from twisted.internet.interfaces import IAddress, IConnector, IReactorTime
from twisted.internet.protocol import ReconnectingClientFactory
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure

from iop.addresses import host_port, is_loopback
from iop.errors import ConfigError, IOPError
from iop.interfaces import ILinkHandler
from iop.link.errors import LinkDown, LinkRefused, LinkUntrusted, RemoteProtocolError
from iop.link.limits import default_limits
from iop.link.protocol import LinkProtocol
from iop.link.resolve import Resolution
from iop.link.session import DIALER, Session
from iop.link.sweep import Sweep
from iop.link.tls import ClientOptions, explain
from iop.proto.link_pb2 import Hello, Reject, Welcome

CONNECT_S = 10.0
WELCOME_S = 15.0                     # from the connection to Welcome: TLS, our Hello, a pinged duplicate
SLOW_S = 60.0
DUPLICATE_S = 30.0
LONGEST_S = 3600.0


class LinkDialer(ReconnectingClientFactory):
    """Keeps one link up. `hello` is asked for a Hello at each try; `on_failure` hears an IOPError for each try that fails."""

    log = Logger()
    noisy = False
    initialDelay = 0.5
    maxDelay = 30.0  # type: ignore[assignment]
    factor = 1.7

    def __init__(self, hello: Callable[[], Hello], handler: ILinkHandler, clock: IReactorTime,
                 on_failure: Callable[[IOPError], None] = lambda error: None, *,
                 chance: Callable[[], float] = random.random) -> None:
        self.clock = clock
        self.delay = self.initialDelay
        self.link: LinkProtocol | None = None      # greeted
        self._hello = hello
        self._handler = handler
        self._on_failure = on_failure
        self._sweep = Sweep(clock)
        self._chance = chance
        self._current: LinkProtocol | None = None  # connected, greeted or not
        self._deadline: Any = None
        self._refused_s: float | None = None
        self._tls: ClientOptions | None = None
        self._address = ""
        self._resolution: Resolution | None = None
        self._stopped: Deferred[None] | None = None

    def start(self, reactor: Any, host: str, port: int, tls: ClientOptions | None = None) -> None:
        """Begin to dial. Raises ConfigError for plain TCP to another machine, before anything is sent."""
        if tls is None:
            check_plain(host)
        self._reactor, self._host, self._port, self._tls = reactor, host, port, tls
        self._address = host_port(host, port)
        self._resolution = Resolution(reactor, host, loopback_only=tls is None)
        self._dial()

    def hurry(self) -> None:
        """Dial now instead of after the delay that is due; nothing where no delay is."""
        if self._callID is not None and self.continueTrying:
            self._callID.cancel()
            self._dial()

    def stop(self) -> Deferred[None]:
        """Say Goodbye and dial no more; fires when the connection is gone."""
        self.stopTrying()
        if self._resolution is not None:
            self._resolution.cancel()
        if self._current is None:
            return succeed(None)
        stopped = self._stopped = Deferred()
        if self._current.up:
            self._current.close("stopping", "This side is stopping.")
        else:
            self._current.abort(LinkDown("Stopped before it was greeted."))
        return stopped

    # --- the factory ----------------------------------------------------------------------------------------------

    def buildProtocol(self, addr: IAddress | None) -> LinkProtocol:
        link = LinkProtocol(Session(DIALER, default_limits()), self, self.clock)
        link.factory = self
        self._current = link
        self._deadline = self.clock.callLater(WELCOME_S, self._late, link)
        return link

    def clientConnectionFailed(self, connector: IConnector, reason: Failure) -> None:
        if self.continueTrying:
            self._failed(LinkDown(_no_connection(self._address, reason)))
        super().clientConnectionFailed(connector, reason)

    def retry(self, connector: IConnector | None = None) -> None:
        """Dial again after the delay that is due; equal jitter, so that a thousand nodes do not come back at once."""
        if not self.continueTrying:
            return
        if self._refused_s is not None:
            delay_s, self._refused_s = self._refused_s * (1 + self._chance() / 5), None
        else:
            delay_s = max(self.initialDelay, self.delay * (0.5 + self._chance() / 2))
            self.delay = min(self.delay * self.factor, self.maxDelay)
        self.retries += 1
        self.log.debug("the next try to reach {address} is in {delay_s:.1f} s", address=self._address, delay_s=delay_s)
        self._callID = self.clock.callLater(delay_s, self._dial)

    # --- Host -----------------------------------------------------------------------------------------------------

    def link_opened(self, link: LinkProtocol) -> None:
        link.send("hello", self._hello())

    def greeting_received(self, link: LinkProtocol, kind: str, message: Welcome | Reject) -> None:
        if isinstance(message, Reject):
            self._refused(link, message)
            return
        self._cancel_deadline()
        self.resetDelay()
        self.link = link
        self._sweep.add(link)
        self.log.info("linked to {peer} at {remote} (epoch {epoch})", peer=message.peer_id, remote=link.remote,
                      epoch=message.epoch)
        link.start(self._handler, message.peer_id, message.epoch)

    def protocol_broken(self, link: LinkProtocol, error: RemoteProtocolError) -> None:
        self.log.warn("{address} broke the protocol ({code}): {reason}", address=self._address, code=error.code,
                      reason=error.message)

    def link_closed(self, link: LinkProtocol, reason: IOPError, failure: Failure | None) -> None:
        self._cancel_deadline()
        self._sweep.discard(link)
        if self.link is link:
            self.log.info("the link to {peer} is down: {reason}", peer=link.peer_id, reason=reason.message)
        elif self._refused_s is None and self.continueTrying:
            self._failed(self._why_not(link, reason, failure))
        self._current = self.link = None
        if self._stopped is not None:
            stopped, self._stopped = self._stopped, None
            stopped.callback(None)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _dial(self) -> None:
        self._callID = None
        self._resolution.address().addCallbacks(self._connect, self._unresolved)

    def _connect(self, address: str) -> None:
        if not self.continueTrying:
            return
        if self.connector is not None:
            self.connector.host = address
            self.connector.connect()
            return
        factory = self if self._tls is None else TLSMemoryBIOFactory(self._tls, True, self, clock=self._reactor)
        self.connector = self._reactor.connectTCP(address, self._port, factory, timeout=CONNECT_S)

    def _unresolved(self, failure: Failure) -> None:
        if self.continueTrying:
            error = failure.value
            self._failed(error if isinstance(error, IOPError) else LinkDown(
                f"The name of {self._address} cannot be looked up: {failure.getErrorMessage()}"))
            self.retry()

    def _late(self, link: LinkProtocol) -> None:
        hint = "" if self._tls is None else "; it may not speak TLS"
        link.abort(LinkDown(f"{self._address} did not greet within {WELCOME_S:g} s{hint}."))

    def _refused(self, link: LinkProtocol, reject: Reject) -> None:
        shortest_s = DUPLICATE_S if reject.code == "duplicate_node" else SLOW_S
        asked_s = reject.retry_after_s if 0 < reject.retry_after_s <= LONGEST_S else 0.0
        self._refused_s = max(shortest_s, asked_s)
        error = LinkRefused(reject.message, code=reject.code or "link_refused", retry_after_s=self._refused_s)
        self.log.warn("{address} refuses the link ({code}): {reason} The next try is in {retry_s:.0f} s or more.",
                      address=self._address, code=error.code, reason=error.message, retry_s=self._refused_s)
        link.abort(error)
        self._on_failure(error)

    def _why_not(self, link: LinkProtocol, reason: IOPError, failure: Failure | None) -> IOPError:
        """Why a connection ended before Welcome: TLS's own reason when it was TLS."""
        if self._tls is not None and failure is not None and not link.opened:
            return LinkUntrusted(explain(failure, self._tls, self._address))
        return reason

    def _failed(self, error: IOPError) -> None:
        self.log.warn("no link yet: {reason}", address=self._address, code=error.code, reason=error.message)
        self._on_failure(error)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None and self._deadline.active():
            self._deadline.cancel()
        self._deadline = None


def _no_connection(address: str, failure: Failure) -> str:
    """Why there is no TCP connection, as a sentence."""
    if failure.check(ConnectionRefusedError):
        return f"Nothing listens at {address}; is the edge running?"
    if failure.check(TimeoutError):
        return f"{address} does not answer within {CONNECT_S:g} s; is it on, and does a firewall stand between?"
    number = getattr(failure.value, "osError", None)
    return f"{address} cannot be reached: {os.strerror(number) if isinstance(number, int) else failure.getErrorMessage()}"


def check_plain(host: str) -> None:
    """Raise ConfigError where plain TCP to a host would leave this machine."""
    if not is_loopback(host):
        raise ConfigError(f"The link to {host} would be plain TCP, which is for loopback only; give the edge a "
                          "certificate, and this node `ca` or `pin`.")
