"""One run's wait for a model server: what it is told meanwhile, and not more often than it wants to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from iop.errors import IOPError

TELL_EVERY_S = 1.0
STILL_EVERY_S = 10.0      # the same again: it still goes on

Told = Callable[[str, str, float], None]       # word, detail, progress from 0 to 1 (0: not known)


class Waiting:
    """`deferred` fires with the use. Cancelling it gives up the wait alone: `gave_up(self)` is called."""

    def __init__(self, clock: Any, told: Told, gave_up: Callable[[Waiting], None]) -> None:
        self.deferred: Deferred[Any] = Deferred(self._cancelled)
        self._clock = clock
        self._told = told
        self._gave_up = gave_up
        self._since_s = clock.seconds()
        self._last: tuple[str, float] = ("", -1.0)
        self._last_s = 0.0

    @property
    def was_told(self) -> bool:
        """Anything at all, or it was served."""
        return bool(self._last[0]) or self.deferred.called

    def tell(self, detail: str, progress: float) -> None:
        """Once a second at most while it goes on, at once when it is something else."""
        now = self._clock.seconds()
        quiet_s = now - self._last_s
        if (detail, progress) == self._last:
            if quiet_s < STILL_EVERY_S:
                return
        elif detail == self._last[0] and quiet_s < TELL_EVERY_S:
            return
        self._last, self._last_s = (detail, progress), now
        waited_s = int(now - self._since_s)
        self._told("loading", f"{detail} ({waited_s} s)" if waited_s else detail, progress)

    def serve(self, use: Any) -> None:
        self.deferred.callback(use)

    def refuse(self, error: IOPError) -> None:
        self.deferred.errback(error)

    def _cancelled(self, deferred: Deferred[Any]) -> None:
        self._gave_up(self)
        deferred.errback(CancelledError())
