"""A way out for a store's thread that starves beside a busy reactor.

Every step of a database driver lets go of the interpreter and must win it back. A reactor that never waits lets go only for
instants in which the other thread does not even wake up, so a commit can take seconds (measured here
with turns of 4 ms, none in 4 s). Therefore: while there is work and the thread has not moved for a tick, the reactor lends
it the interpreter, for the time it needs and 2 ms at most. It gets it back at once when the thread waits for the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

TICK_S = 0.005
LOAN_S = 0.002
LONGEST_PAUSE = 64               # ticks without a loan, when loans did not help: the database is slow, not the thread


class Lending:
    """Between one reactor and one thread. `pending()` tells whether the thread has work."""

    def __init__(self, clock: Any, pending: Callable[[], bool]) -> None:
        self._clock = clock
        self._pending = pending
        self._timer: Any = None
        self._returned: SimpleQueue[None] = SimpleQueue()
        self._lent = False
        self._moves = 0              # of the thread
        self._seen = 0
        self._pause = self._fruitless = 0

    # --- on the reactor thread ---

    def work_came(self) -> None:
        if self._timer is None:
            self._seen = self._moves
            self._timer = self._clock.callLater(TICK_S, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        if not self._pending():
            return
        if self._moves != self._seen:
            self._pause = self._fruitless = 0
        elif self._pause:
            self._pause -= 1
        else:
            self._lend()
        self._seen = self._moves
        self._timer = self._clock.callLater(TICK_S, self._tick)

    def _lend(self) -> None:
        while not self._returned.empty():
            self._returned.get_nowait()
        self._lent = True
        try:
            self._returned.get(timeout=LOAN_S)
        except Empty:
            pass
        self._lent = False
        if self._moves == self._seen:
            self._fruitless += 1
            self._pause = min(1 << self._fruitless, LONGEST_PAUSE)
        else:
            self._pause = self._fruitless = 0

    # --- on the other thread ---

    def moved(self) -> None:
        """It did something."""
        self._moves += 1

    def give_back(self) -> None:
        """It will wait now, for the disk or for work."""
        self._moves += 1
        if self._lent:
            self._lent = False
            self._returned.put(None)
