"""A supervisor's end of the socket to its node, which may go and come again. Standard library only."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable

from iop.node.words import GREW, PLACE, Strange, Words, word

READ_BYTES = 1024 * 1024


class Connection:
    """To the node, when there is one."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self.gone = False                        # there was one
        self._selector = selector
        self._socket: socket.socket | None = None
        self._words = Words()
        self._told = -1
        self._unsent = b""
        self._writing = False
        self._said: Callable[[], None] = lambda: None

    def connected(self, connection: socket.socket, said: Callable[[], None]) -> None:
        """The latest counts: an earlier one is of a node that is no more."""
        self.drop()
        connection.setblocking(False)
        self._socket, self._words, self._told, self._unsent = connection, Words(), -1, b""
        self._said = said
        self._writing = self.gone = False
        self._selector.register(connection, selectors.EVENT_READ, self._ready)

    def read(self) -> list[tuple[int, bytes]]:
        if self._socket is None:
            return []
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.drop()
        try:
            return self._words.feed(data)
        except Strange:
            self.drop()
            return []

    def tell(self, end: int) -> None:
        """How far the journal goes by now, unless it was told."""
        if self._socket is None or (end == self._told and not self._unsent):
            return
        if not self._unsent:
            self._told, self._unsent = end, word(GREW, PLACE.pack(end))
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent):]
        except BlockingIOError:
            pass
        except OSError:
            self.drop()
            return
        if bool(self._unsent) is not self._writing:
            self._writing = not self._writing
            self._selector.modify(self._socket, selectors.EVENT_READ | (selectors.EVENT_WRITE if self._writing else 0),
                                  self._ready)

    def _ready(self) -> None:
        self._said()                             # a socket that can be written to again is served by tell()

    def drop(self) -> None:
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None
            self.gone = True
