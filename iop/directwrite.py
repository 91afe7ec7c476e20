"""Writes that go to the kernel at once: a small piece costs a system call, not a reactor turn and two
epoll_ctl.

Plain TCP only. Twisted's own buffering takes over as soon as the kernel does not take all of it, and whatever is wrong with
a connection is left for it to find, so that a write never ends a connection in the middle of its caller.
"""

from __future__ import annotations

from typing import Any


class DirectWrite:
    """In front of one of Twisted's TCP connections."""

    def write(self: Any, data: bytes) -> None:
        if self.connected and not (self.dataBuffer or self._tempDataBuffer or self.TLS or self.disconnecting
                                   or self._writeDisconnecting):
            try:
                sent = self.socket.send(data)
            except OSError:              # it would block, or the connection is broken: doWrite comes to the same
                sent = 0
            if sent == len(data):
                return
            data = data[sent:]
        super().write(data)              # type: ignore[misc]  # Twisted's
