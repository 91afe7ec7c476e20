"""The one transport that sends at once (performance.md 1.1): a stream's chunk costs a system call, not a reactor turn and two
epoll_ctl.

Plain TCP only. Twisted's own buffering takes over as soon as the kernel does not take all of it, and whatever is wrong with
a connection is left for it to find, so that a write never ends a connection in the middle of its caller.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IListeningPort, IProtocolFactory
from twisted.internet.tcp import Port, Server


class DirectServer(Server):
    """A server's connection."""

    def write(self, data: bytes) -> None:
        if self.connected and not (self.dataBuffer or self._tempDataBuffer or self.TLS or self.disconnecting
                                   or self._writeDisconnecting):
            try:
                sent = self.socket.send(data)
            except OSError:              # it would block, or the connection is broken: doWrite comes to the same
                sent = 0
            if sent == len(data):
                return
            data = data[sent:]
        super().write(data)


class DirectPort(Port):
    """Listens for connections that send at once."""

    transport = DirectServer


def listen(reactor: Any, port: int, factory: IProtocolFactory, interface: str) -> IListeningPort:
    """As reactor.listenTCP. Raises CannotListenError."""
    opened = DirectPort(port, factory, 50, interface, reactor)
    opened.startListening()
    return opened
