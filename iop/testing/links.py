"""A pair of real link ends over a memory wire, for the tests of roles: no reactor, no socket, time by hand.

::

    clock = Clock()
    pair = LinkPair(edge_side, node_side, clock)     # two ILinkHandlers; both have heard link_up
    pair.dialer.send("runs_report", RunsReport(last=True))
    pair.pump()                                      # until nothing moves any more
"""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import succeed
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.interfaces import ITransport
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from iop.interfaces import IGreeter, ILinkHandler
from iop.link.dial import LinkDialer
from iop.link.limits import default_limits
from iop.link.listen import LinkListener
from iop.link.peers import Peers
from iop.link.protocol import LinkProtocol
from iop.proto.link_pb2 import Hello, LinkLimits


@implementer(ITransport)
class MemoryTransport:
    """One end of a Wire. What is written waits until the wire is pumped."""

    def __init__(self, protocol: Protocol, port: int, peer_port: int) -> None:
        self.protocol = protocol
        self.sent = bytearray()      # not yet delivered
        self.disconnecting = False
        self.ending: Exception | None = None    # told to the protocol by the next pump
        self.disconnected = False
        self._host = IPv4Address("TCP", "127.0.0.1", port)
        self._peer = IPv4Address("TCP", "127.0.0.1", peer_port)

    def write(self, data: bytes) -> None:
        if not self.disconnecting and not self.disconnected and self.ending is None:
            self.sent += data

    def writeSequence(self, data: Any) -> None:
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        self.disconnecting = True

    def abortConnection(self) -> None:
        self.sent.clear()
        self.ending = self.ending or ConnectionAborted()

    def getPeer(self) -> IPv4Address:
        return self._peer

    def getHost(self) -> IPv4Address:
        return self._host

    def lose(self, error: Exception) -> None:
        """Tell the protocol that the connection is gone."""
        if not self.disconnected:
            self.disconnected = True
            self.protocol.connectionLost(Failure(error))


class Wire:
    """Two MemoryTransports back to back."""

    def __init__(self, one: Protocol, other: Protocol) -> None:
        self.ends = (MemoryTransport(one, 7410, 40000), MemoryTransport(other, 40000, 7410))
        self.stopped = False         # a black hole: what is written waits

    def connect(self) -> None:
        for end in self.ends:
            end.protocol.makeConnection(end)

    def pump(self) -> bool:
        """Deliver what waits in both directions once; whether anything happened."""
        moved = False
        for end, far in (self.ends, self.ends[::-1]):
            moved = self._deliver(end, far) or moved
            moved = self._end(end, far) or moved
        return moved

    def _deliver(self, end: MemoryTransport, far: MemoryTransport) -> bool:
        if not end.sent or self.stopped:
            return False
        data = bytes(end.sent)
        end.sent.clear()
        if not far.disconnected and far.ending is None:
            far.protocol.dataReceived(data)
        return True

    def _end(self, end: MemoryTransport, far: MemoryTransport) -> bool:
        if end.disconnected:
            return False
        if end.ending is not None:
            end.lose(end.ending)
        elif end.disconnecting and not end.sent:
            end.lose(ConnectionDone())
        else:
            return False
        if not self.stopped:
            far.ending = far.ending or ConnectionDone()
        return True

    def cut(self) -> None:
        """The connection breaks: both ends hear it, what was on its way is lost."""
        for end in self.ends:
            end.sent.clear()
            end.lose(ConnectionLost())


@implementer(ILinkHandler)
class Recorder:
    """A role that only writes down what it is told: `told` has ("link_up",), (kind, message), ("read_finished",),
    ("link_down", reason)."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.link: Any = None

    def link_up(self, link: Any) -> None:
        self.link = link
        self.told.append(("link_up",))

    def frame_received(self, link: Any, kind: str, message: Any, packed: bytes) -> None:
        self.told.append((kind, message))

    def read_finished(self, link: Any) -> None:
        self.told.append(("read_finished",))

    def link_down(self, link: Any, reason: Exception) -> None:
        self.told.append(("link_down", reason))

    @property
    def kinds(self) -> list[str]:
        """The first words of `told`."""
        return [entry[0] for entry in self.told]


@implementer(IGreeter)
class OpenGreeter:
    """Takes everyone. `handler`: an ILinkHandler, or a function of the Hello that returns one."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler

    def greet(self, hello: Hello, remote: str) -> Any:
        handler = self._handler
        return succeed(handler if ILinkHandler.providedBy(handler) or not callable(handler) else handler(hello))


class LinkPair:
    """A LinkListener's and a LinkDialer's end, connected and greeted.

    `listener` and `dialer` are the two ILinks. With `greet=False` nothing has been pumped yet. Pass the same `peers` to
    several pairs to see what a second link of the same peer does.
    """

    def __init__(self, listener_handler: Any, dialer_handler: Any, clock: Clock, *, peer_id: str = "node-1",
                 instance: str = "1", edge_id: str = "edge", limits: LinkLimits | None = None, peers: Peers | None = None,
                 greet: bool = True) -> None:
        self.clock = clock
        self.peers = peers or Peers(clock)
        self.factory = LinkListener(edge_id, OpenGreeter(listener_handler), self.peers, clock, limits or default_limits())
        hello = Hello(peer_id=peer_id, token="token", instance=instance, protocol=1, version="test")  # noqa: S106
        self.dialing = LinkDialer(lambda: hello, dialer_handler, clock)
        self.dialing.continueTrying = 0      # a pair is one connection
        listener, dialer = self.factory.buildProtocol(None), self.dialing.buildProtocol(None)
        if listener is None:
            raise RuntimeError("the listener took no connection")
        self.listener: LinkProtocol = listener
        self.dialer: LinkProtocol = dialer
        self.wire = Wire(listener, dialer)
        self.wire.connect()
        if greet:
            self.pump()

    def pump(self) -> None:
        """Deliver until nothing moves any more, with what is due now on the clock."""
        for _ in range(10_000):
            self.clock.advance(0)
            if not self.wire.pump():
                return
        raise RuntimeError("the link never comes to rest")

    def elapse(self, seconds: int) -> None:
        """Let time pass, a second at a time as the sweep wants it, pumping in between."""
        for _ in range(seconds):
            self.clock.advance(1)
            self.pump()

    def cut(self) -> None:
        """Break the connection."""
        self.wire.cut()
        self.pump()
