"""The transport that sends at once, on a real pair of sockets and a reactor that only remembers who wants to write."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from pytest_twisted import ensureDeferred
from twisted.internet import protocol, reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IListeningPort
from zope.interface.verify import verifyObject

from iop.web.transport import DirectServer, listen


class Turns:
    """What a reactor is asked for by a transport."""

    def __init__(self) -> None:
        self.writers: set[Any] = set()
        self.addWriter, self.removeWriter = self.writers.add, self.writers.discard

    def addReader(self, reader: Any) -> None:
        pass

    removeReader = addReader


class Producer:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def pauseProducing(self) -> None:
        self.heard.append("paused")

    def resumeProducing(self) -> None:
        self.heard.append("resumed")

    def stopProducing(self) -> None:
        self.heard.append("stopped")


class Pair:
    def __init__(self) -> None:
        self.turns = Turns()
        mine, self.peer = socket.socketpair()
        mine.setblocking(False)
        self.peer.setblocking(False)
        self.transport = DirectServer(mine, protocol.Protocol(), ("127.0.0.1", 1), None, 0, self.turns)

    def read(self) -> bytes:
        """All that has arrived."""
        found = b""
        try:
            while data := self.peer.recv(1 << 20):
                found += data
        except BlockingIOError:
            pass
        return found

    def close(self) -> None:
        self.peer.close()
        self.transport.socket.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


def test_a_write_is_sent_at_once_and_asks_for_no_turn(pair: Pair) -> None:
    pair.transport.write(b"one")
    assert pair.read() == b"one"
    assert not pair.turns.writers


def test_what_the_kernel_does_not_take_follows_in_order(pair: Pair) -> None:
    producer = Producer()
    pair.transport.registerProducer(producer, True)
    sent = b"".join(b"%07d " % number for number in range(500_000))
    pair.transport.write(sent)
    pair.transport.write(b"the end")
    assert pair.turns.writers == {pair.transport}
    assert producer.heard == ["paused", "paused"]
    found = b""
    while pair.turns.writers:
        found += pair.read()
        assert pair.transport.doWrite() is None
    assert found + pair.read() == sent + b"the end"
    assert producer.heard[-1] == "resumed"
    pair.transport.write(b"more")
    assert pair.read() == b"more", "it is direct again once the buffer is empty"


def test_a_write_to_a_broken_connection_leaves_its_end_to_the_reactor(pair: Pair) -> None:
    pair.peer.close()
    pair.transport.write(b"one")
    pair.transport.write(b"two")
    assert pair.transport.connected
    assert pair.turns.writers == {pair.transport}
    assert isinstance(pair.transport.doWrite(), ConnectionLost)


def test_what_is_written_after_the_farewell_waits_behind_it(pair: Pair) -> None:
    pair.transport.loseConnection()
    pair.transport.write(b"late")
    assert pair.read() == b""
    pair.transport.doWrite()
    assert pair.read() == b"late"


def test_after_its_end_nothing_is_sent(pair: Pair) -> None:
    pair.transport.connected = False
    pair.transport.write(b"late")
    assert pair.read() == b""
    assert not pair.turns.writers


def test_what_is_no_bytes_is_refused(pair: Pair) -> None:
    with pytest.raises(TypeError):
        pair.transport.write("text")  # type: ignore[arg-type]


@ensureDeferred
async def test_a_port_of_it_serves() -> None:
    class Greet(protocol.Protocol):
        def connectionMade(self) -> None:
            assert isinstance(self.transport, DirectServer)
            self.transport.write(b"hello")
            self.transport.loseConnection()

    class Hear(protocol.Protocol):
        def connectionMade(self) -> None:
            self.heard, self.done = b"", Deferred()

        def dataReceived(self, data: bytes) -> None:
            self.heard += data

        def connectionLost(self, reason: Any = protocol.connectionDone) -> None:
            self.done.callback(self.heard)

    port = listen(reactor, 0, protocol.Factory.forProtocol(Greet), "127.0.0.1")
    try:
        assert verifyObject(IListeningPort, port)
        client = await connectProtocol(TCP4ClientEndpoint(reactor, "127.0.0.1", port.getHost().port), Hear())
        assert await client.done == b"hello"
    finally:
        await port.stopListening()
