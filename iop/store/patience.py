"""How long a caller waits for a commit: one timer for all who do, since all wait equally long."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from iop.errors import HistoryUnavailable
from iop.store.work import Write


class Patience:
    """Fails the Deferreds of writes that are not committed in time. The write itself stays queued, in its place.

    `overdue()` is called before each failure.
    """

    def __init__(self, clock: Any, seconds: float, overdue: Callable[[], None]) -> None:
        self._clock = clock
        self._overdue = overdue
        self._seconds = seconds
        self._waiting: deque[tuple[float, Write, bool]] = deque()
        self._timer: Any = None

    def watch(self, write: Write, *, withdraw: bool) -> None:
        """From now on. `withdraw`: being told no, the caller must not find it done later, so it is taken back if it can."""
        self._waiting.append((self._clock.seconds() + self._seconds, write, withdraw))
        if self._timer is None:
            self._timer = self._clock.callLater(self._seconds, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting.clear()

    def _look(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        while self._waiting and (self._waiting[0][1].done or self._waiting[0][0] <= now):
            _, write, withdraw = self._waiting.popleft()
            if not write.done:
                self._end(write, withdraw)
        if self._waiting:
            self._timer = self._clock.callLater(max(self._waiting[0][0] - now, 0), self._look)

    def _end(self, write: Write, withdraw: bool) -> None:
        self._overdue()
        write.withdrawn = withdraw
        deferred, write.deferred = write.deferred, None
        if deferred is not None:
            deferred.errback(HistoryUnavailable())
