"""One connection to a backend: what stands between the socket and Twisted's HTTP client.

It counts a reply's head, tells when a read has been handed over (so that all chunks of one read become one emit), and
ends without a goodbye: a client that has what it wants must not wait for a peer that may be dead (TLS close-notify).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import connectionDone
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from iop.adapters.wire.heads import HeadMeter
from iop.addresses import address_of, is_never_backend
from iop.errors import UpstreamError


class ClosedWhileKept(UpstreamError):
    """The backend closed a connection that was kept for the next request just when that came."""


class Reading:
    """Which connection is handing bytes to its parser right now; the reactor has one thread, so there is one at most."""

    connection: Connection | None = None


class Connection(ProtocolWrapper):  # type: ignore[misc]
    """See the module."""

    def __init__(self, factory: WrappingFactory, wrapped: Any, reading: Reading) -> None:
        super().__init__(factory, wrapped)
        self._reading = reading
        self._head: HeadMeter | None = None               # of the reply that is awaited
        self._kept = False                                # it has carried a reply before
        self._fault: UpstreamError | None = None          # why we ended it ourselves
        self.read_finished: Callable[[], None] | None = None

    def write(self, data: bytes) -> None:
        self._head = HeadMeter()
        self.transport.write(data)

    def writeSequence(self, data: list[bytes]) -> None:
        self._head = HeadMeter()
        self.transport.writeSequence(data)

    def dataReceived(self, data: bytes) -> None:
        if self._head is not None and not self._head_passes(self._head, data):
            return
        self._reading.connection = self
        try:
            self.wrappedProtocol.dataReceived(data)
        finally:
            self._reading.connection = None
        if self.read_finished is not None:
            self.read_finished()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if (self._fault is None and not self.disconnecting
                and self._kept and self._head is not None and self._head.untouched):
            self._fault = ClosedWhileKept(retryable=True)
        super().connectionLost(reason if self._fault is None else Failure(self._fault))

    def loseConnection(self) -> None:
        self.disconnecting = 1
        self.transport.abortConnection()

    def abortConnection(self) -> None:
        self.loseConnection()

    def _head_passes(self, head: HeadMeter, data: bytes) -> bool:
        try:
            head.feed(data)
        except UpstreamError as error:
            self._fault = error
            self.loseConnection()
            return False
        if head.ended:
            self._head = None
            self._kept = True
        return True


class _Connections(WrappingFactory):  # type: ignore[misc]
    noisy = False

    def __init__(self, factory: Any, reading: Reading) -> None:
        super().__init__(factory)
        self._shared = reading

    def buildProtocol(self, addr: object) -> Connection:
        return Connection(self, self.wrappedFactory.buildProtocol(addr), self._shared)

    def registerProtocol(self, p: object) -> None:
        """Nobody asks for the list."""

    def unregisterProtocol(self, p: object) -> None:
        """Nobody asks for the list."""


@implementer(IStreamClientEndpoint)
class GuardedEndpoint:
    """An endpoint whose connections are guarded as the module says."""

    def __init__(self, endpoint: Any, reading: Reading) -> None:
        self._endpoint = endpoint
        self._reading = reading

    def connect(self, factory: Any) -> Deferred[Any]:
        connecting: Deferred[Any] = self._endpoint.connect(_Connections(factory, self._reading))
        return connecting.addCallback(_checked)


def _checked(connection: Connection) -> Any:
    """The node's policy has judged the URL's host; a name may still lead anywhere."""
    address = address_of(getattr(connection.transport.getPeer(), "host", ""))
    if address is not None and is_never_backend(address):
        connection.loseConnection()
        raise UpstreamError(f"The backend's name leads to {address}, where no model backend may be.")
    return connection.wrappedProtocol
