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

    def begin(self, url: str, limit_s: float, ready: Callable[[], None], not_yet: Callable[[], None],
              too_late: Callable[[], None]) -> None:
        """`ready()` or `too_late()` is called once, unless stop() is; `not_yet()` after each look before that."""
        self.stop()
        this, began_s = self._round, self._clock.seconds()

        def look(pause_s: float) -> None:
            self._asked = asked = self._probe(url)
            asked.addCallbacks(lambda reply: looked(reply[0] == 200, pause_s), lambda failure: looked(False, pause_s))

        def looked(answers: bool, pause_s: float) -> None:
            if this != self._round:
                return
            self._asked = None
            if answers:
                ready()
            elif self._clock.seconds() - began_s >= limit_s:
                too_late()
            else:
                not_yet()
                if this == self._round:
                    self._alarm.set(pause_s, look, min(pause_s * 1.5, LOOK_MOST_S))

        look(LOOK_S)

    def stop(self) -> None:
        self._round += 1                     # an answer that comes nevertheless is of an earlier one
        self._alarm.clear()
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.cancel()
