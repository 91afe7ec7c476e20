"""The node's end of the socket to a supervisor.

The path of a unix socket is at most 108 bytes long, and a state folder may lie deep: the socket is bound and connected to
through a descriptor of its folder.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

from twisted.internet import protocol
from twisted.python.failure import Failure

from iop.node import words

NAME = "control"
BACKLOG = 16


class Control(protocol.Protocol):
    """`grew(offset)` for each word of it; `gone()` once, when the supervisor is no more."""

    def __init__(self, grew: Callable[[int], None], gone: Callable[[], None]) -> None:
        self._grew = grew
        self._gone = gone
        self._words = words.Words()
        self._unsaid: list[bytes] | None = []     # before the connection

    def connectionMade(self) -> None:
        unsaid, self._unsaid = self._unsaid or [], None
        self._write(b"".join(unsaid))

    def dataReceived(self, data: bytes) -> None:
        told = [payload for kind, payload in self._words.feed(data) if kind == words.GREW]
        if told:
            self._grew(*words.PLACE.unpack(told[-1]))

    def connectionLost(self, reason: Failure = protocol.connectionDone) -> None:
        self._gone()

    def say(self, kind: int, payload: bytes = b"") -> None:
        """What is said before there is a connection waits for it; nobody hears what is said after that."""
        if self._unsaid is not None:
            self._unsaid.append(words.word(kind, payload))
        else:
            self._write(words.word(kind, payload))

    def _write(self, data: bytes) -> None:
        if self.connected and self.transport is not None:
            self.transport.write(data)


class _One(protocol.Factory):
    noisy = False

    def __init__(self, control: Control) -> None:
        self._control = control

    def buildProtocol(self, addr: Any) -> Control:
        return self._control


def listening(folder: str) -> socket.socket:
    """A socket that listens in `folder`. Raises OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _through(folder, listener.bind)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def connect(reactor: Any, folder: str, control: Control) -> None:
    """Connect to the supervisor of `folder`. Raises OSError: nobody is there (any more)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        _through(folder, connection.connect)
        reactor.adoptStreamConnection(connection.fileno(), socket.AF_UNIX, _One(control))


def _through(folder: str, use: Callable[[str], None]) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        use(f"/proc/self/fd/{descriptor}/{NAME}")
    finally:
        os.close(descriptor)
