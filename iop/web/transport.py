"""The transport of HTTP without TLS: it sends at once."""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IListeningPort, IProtocolFactory
from twisted.internet.tcp import Port, Server

from iop.directwrite import DirectWrite


class DirectServer(DirectWrite, Server):
    """A server's connection."""


class DirectPort(Port):
    """Listens for connections that send at once."""

    transport = DirectServer


def listen(reactor: Any, port: int, factory: IProtocolFactory, interface: str) -> IListeningPort:
    """As reactor.listenTCP. Raises CannotListenError."""
    opened = DirectPort(port, factory, 50, interface, reactor)
    opened.startListening()
    return opened
