"""Random bytes of the system, drawn in blocks.

Each draw is a system call that lets go of the interpreter, which a thread beside a busy reactor then keeps for milliseconds.
"""

from __future__ import annotations

import os
from threading import Lock

BLOCK_BYTES = 4096


class RandomBytes:
    """For ids, not for keys: what is drawn ahead stands in memory. A forked child draws its own."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._block, self._at = b"", 0
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._lock = Lock()
        self._block, self._at = b"", 0

    def take(self, count: int) -> bytes:
        """`count` bytes, 4 Ki at most, that nobody else is given."""
        with self._lock:
            if self._at + count > len(self._block):
                self._block, self._at = os.urandom(BLOCK_BYTES), 0
            start, self._at = self._at, self._at + count
            return self._block[start:self._at]


take = RandomBytes().take
