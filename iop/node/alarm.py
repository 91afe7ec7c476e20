"""A call that is due later, of which there is one at most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IDelayedCall


class Alarm:
    """Setting it again forgets what it was set for before."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self._due: IDelayedCall | None = None

    @property
    def is_set(self) -> bool:
        return self._due is not None and self._due.active()

    def set(self, seconds: float, call: Callable[..., object], *args: object) -> None:
        self.clear()
        self._due = self._clock.callLater(seconds, call, *args)

    def clear(self) -> None:
        if self._due is not None and self._due.active():
            self._due.cancel()
        self._due = None
