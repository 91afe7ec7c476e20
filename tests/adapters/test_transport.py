"""Connections to backends that send at once, on real sockets."""

from __future__ import annotations

from pytest_twisted import ensureDeferred
from twisted.internet import protocol, reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import connectProtocol
from twisted.internet.task import Clock, deferLater

from iop.adapters.wire.transport import DirectClient, direct_endpoint

MUCH = bytes(range(256)) * 64 * 1024


class Backend(protocol.Protocol):
    """Counts what comes, slowly."""

    def __init__(self, wanted: int) -> None:
        self.found = bytearray()
        self.wanted = wanted
        self.whole: Deferred[None] = Deferred()

    def connectionMade(self) -> None:
        self.transport.pauseProducing()

    def dataReceived(self, data: bytes) -> None:
        self.found += data
        if len(self.found) >= self.wanted and not self.whole.called:
            self.whole.callback(None)


@ensureDeferred
async def test_a_request_is_sent_within_the_call_and_a_large_one_arrives_whole() -> None:
    backend = Backend(2 + len(MUCH))
    factory = protocol.Factory.forProtocol(lambda: backend)
    port = reactor.listenTCP(0, factory, interface="127.0.0.1")
    try:
        endpoint = direct_endpoint(reactor, "127.0.0.1", port.getHost().port, 5.0)
        client = await connectProtocol(endpoint, protocol.Protocol())
        assert isinstance(client.transport, DirectClient)
        client.transport.write(b"{}")
        assert client.transport not in reactor.getWriters()
        client.transport.write(MUCH)
        assert client.transport in reactor.getWriters()       # the kernel took a part
        await deferLater(reactor, 0.01)
        backend.transport.resumeProducing()
        await backend.whole
        assert bytes(backend.found) == b"{}" + MUCH
        client.transport.abortConnection()
    finally:
        await port.stopListening()


def test_a_reactor_that_is_none_of_twisteds_connects_in_its_own_way() -> None:
    asked = []

    class Memory(Clock):
        def connectTCP(self, *where: object, **more: object) -> None:
            asked.append(where[:2])

    connectProtocol(direct_endpoint(Memory(), "127.0.0.1", 80, 5.0), protocol.Protocol())
    assert asked == [("127.0.0.1", 80)]
