"""Looks at the health of one server until it answers, or for too long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from iop.node.alarm import Alarm

LOOK_S, LOOK_MOST_S = 0.05, 1.0      # between two looks; each pause is half as long again

Probe = Callable[[str], Deferred[tuple[int, bytes]]]     # of a URL: its status and body


class Looking:
    """One at most is under way: begin() ends the one before."""

    def __init__(self, clock: Any, probe: Probe) -> None:
        self._clock = clock
        self._probe = probe
        self._asked: Deferred[Any] | None = None
        self._alarm = Alarm(clock)            # for the next look
        self._round = 0
        self._began_s = 0.0
        self._pause_s = LOOK_S

    def begin(self, url: str, limit_s: float, ready: Callable[[], None], not_yet: Callable[[], None],
              too_late: Callable[[], None]) -> None:
        """`ready()` or `too_late()` is called once, unless stop() is; `not_yet()` after each look before that."""
        self.stop()
        self._began_s, self._pause_s = self._clock.seconds(), LOOK_S
        self._look(url, limit_s, ready, not_yet, too_late)

    def stop(self) -> None:
        self._round += 1                     # an answer that comes nevertheless is of an earlier one
        self._alarm.clear()
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.cancel()

    def _look(self, url: str, limit_s: float, ready: Callable[[], None], not_yet: Callable[[], None],
              too_late: Callable[[], None]) -> None:
        this = self._round

        def looked(answers: bool) -> None:
            if this != self._round:
                return
            self._asked = None
            if answers:
                ready()
            elif self._clock.seconds() - self._began_s >= limit_s:
                too_late()
            else:
                not_yet()
                if this == self._round:
                    self._alarm.set(self._pause_s, self._look, url, limit_s, ready, not_yet, too_late)
                    self._pause_s = min(self._pause_s * 1.5, LOOK_MOST_S)

        self._asked = asked = self._probe(url)
        asked.addCallbacks(lambda reply: looked(reply[0] == 200), lambda failure: looked(False))
