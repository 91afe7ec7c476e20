"""One look a second at all links of a process: a timer for each would cost 8 % of a core at 10,000 links."""

from __future__ import annotations

from typing import Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

INTERVAL_S = 1.0


class Swept(Protocol):
    def sweep(self, now_s: float) -> None:
        """Look at the time; called once a second."""


class Sweep:
    """Calls `sweep` of each member once a second; runs no timer while there are none."""

    log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._members: dict[Swept, None] = {}
        self._loop = LoopingCall(self._sweep)
        self._loop.clock = clock

    def add(self, member: Swept) -> None:
        self._members[member] = None
        if not self._loop.running:
            self._loop.start(INTERVAL_S, now=False).addErrback(lambda failure: self.log.failure("sweep", failure))

    def discard(self, member: Swept) -> None:
        self._members.pop(member, None)
        if not self._members and self._loop.running:
            self._loop.stop()

    def _sweep(self) -> None:
        now_s = self._clock.seconds()
        for member in tuple(self._members):
            try:
                member.sweep(now_s)
            except Exception:            # one link's fault must not end the others' heartbeat
                self.log.failure("a link could not be swept")
