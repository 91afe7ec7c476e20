"""The runs that wait for a model server: what each is told meanwhile, and not more often than it wants to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from iop.errors import IOPError
from iop.servers import Told

TELL_EVERY_S = 1.0
STILL_EVERY_S = 10.0      # the same again: it still goes on


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
        self._told(f"{detail} ({waited_s} s)" if waited_s else detail, progress)

    def serve(self, use: Any) -> None:
        self.deferred.callback(use)

    def refuse(self, error: IOPError) -> None:
        self.deferred.errback(error)

    def _cancelled(self, deferred: Deferred[Any]) -> None:
        self._gave_up(self)
        deferred.errback(CancelledError())


class Waits:
    """Those who wait for one server, in their order. `gave_up()` is called when one has."""

    def __init__(self, clock: Any, gave_up: Callable[[], None]) -> None:
        self._clock = clock
        self._gave_up = gave_up
        self._waiting: list[Waiting] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, told: Told) -> Waiting:
        waiting = Waiting(self._clock, told, self._remove)
        self._waiting.append(waiting)
        return waiting

    def tell(self, detail: str, progress: float = 0.0) -> None:
        for one in list(self._waiting):
            one.tell(detail, progress)

    def serve(self, admit: Callable[[], Any]) -> None:
        """All of them, each with a use of its own."""
        for one in self._emptied():
            one.serve(admit())

    def refuse(self, error: Callable[[], IOPError]) -> None:
        for one in self._emptied():
            one.refuse(error())

    def _emptied(self) -> list[Waiting]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def _remove(self, waiting: Waiting) -> None:
        self._waiting.remove(waiting)
        self._gave_up()
