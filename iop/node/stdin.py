"""A program's standard input, as its supervisor holds it. Standard library only."""

from __future__ import annotations

import collections
import errno
import os
import selectors

WRITE_BYTES = 64 * 1024     # what an empty pipe takes


class Input:
    """The program's standard input; what it does not take yet waits here."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._pipe = -1                          # before there is one, and once it is closed
        self._waiting: collections.deque[bytes] = collections.deque()
        self._closing = False
        self._watched = False

    def attach(self, pipe: int) -> None:
        self._pipe = pipe
        self._write()

    def write(self, data: bytes) -> None:
        if data and not self._closing:
            self._waiting.append(data)
            self._write()

    def close(self) -> None:
        self._closing = True
        self._write()

    def _write(self) -> None:
        if self._pipe < 0:
            return
        try:
            while self._waiting:
                written = os.write(self._pipe, self._waiting[0][:WRITE_BYTES])
                self._waiting[0] = self._waiting[0][written:]
                if not self._waiting[0]:
                    self._waiting.popleft()
        except OSError as failure:
            if failure.errno != errno.EAGAIN:    # nobody reads it any more
                self._waiting.clear()
                self._closing = True
        if self._waiting and not self._watched:
            self._selector.register(self._pipe, selectors.EVENT_WRITE, self._write)
            self._watched = True
        elif not self._waiting and self._watched:
            self._selector.unregister(self._pipe)
            self._watched = False
        if not self._waiting and self._closing:
            os.close(self._pipe)
            self._pipe = -1
