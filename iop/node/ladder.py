"""Ends all processes of one run: INT, TERM, KILL with time in between, then whatever is left, until nothing is.

Runs in the run's supervisor, which is the subreaper of all that the run starts: what it does not find among its own
descendants carries the run's marker. A course is a generator that yields the time at which it wants to go on at the latest;
it is resumed after everything that happens. Standard library only.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from iop.node import processes

LEFT_BEHIND_S = 1.0       # what outlives its program has this long between TERM and KILL
SWEEP_LIMIT_S = 12.0      # KILL again until none is left, at most this long
LOOK_AGAIN_S = 0.03

Course = Iterator[float]


class Family(Protocol):
    """What the supervisor knows of its children without looking: it reaps them."""

    pid: int                 # of the program
    exited: bool             # the program has been reaped: its pid may be another's
    childless: bool          # nothing that descends from this supervisor is left


class Ladder:
    """The signals to one run."""

    def __init__(self, family: Family, run_id: str, now: Callable[[], float] = time.monotonic) -> None:
        self.steps: list[str] = []       # signals that a stop sent, in order
        self.hurried = False             # no more patience: KILL
        self.left = 0                    # after a sweep: what could not be ended, -1 when that cannot be known
        self._family = family
        self._marker = f"IOP_RUN_ID={run_id}".encode()
        self._since_ticks = processes.start_ticks(os.getpid())
        self._now = now

    @property
    def _gone(self) -> bool:
        return self._family.exited and self._family.childless

    def climb(self, int_s: float, term_s: float) -> Course:
        """The whole ladder, until nothing is left or KILL was of no use for long."""
        for name, wait_s in (("SIGINT", int_s), ("SIGTERM", term_s)):
            deadline = self._now() + wait_s
            if not self.hurried and not self._gone and self._signal(name):
                self.steps.append(name)
                while not self.hurried and not self._gone and self._now() < deadline:
                    yield deadline
        deadline = self._now() + SWEEP_LIMIT_S
        while not self._gone and self._now() < deadline:
            if self._signal("SIGKILL") and "SIGKILL" not in self.steps:
                self.steps.append("SIGKILL")
            yield self._now() + LOOK_AGAIN_S

    def sweep(self, grace_s: float) -> Course:
        """End what the program left behind; `left` tells how many could not be."""
        try:
            if self._none_left():
                return
            deadline = self._now() + grace_s
            if grace_s and self._signal("SIGTERM"):
                while self._now() < deadline and not self.hurried:
                    yield min(deadline, self._now() + LOOK_AGAIN_S)
                    if self._none_left():
                        return
            deadline = self._now() + SWEEP_LIMIT_S
            while self._now() < deadline:
                self._signal("SIGKILL")
                yield self._now() + LOOK_AGAIN_S
                if self._none_left():
                    return
            self.left = len(self._look())
        except OSError:
            self.left = -1

    def _none_left(self) -> bool:
        return self._family.childless and not self._look()

    def _signal(self, name: str) -> int:
        """Send one signal to each process of the run once; the number of them."""
        number = getattr(signal, name)
        group = 0
        if not self._family.exited:
            try:
                os.killpg(self._family.pid, number)
                group = self._family.pid
            except OSError:              # it has no session yet
                pass
        try:
            return len(self._look(number, group)) or int(bool(group))
        except OSError:                      # no /proc
            return int(bool(group))

    def _look(self, number: int = 0, spared_group: int = 0) -> list[processes.Process]:
        """What is left of the run, each given signal `number`."""
        return processes.members(self._marker, {}, (), self._since_ticks, number=number, spared_group=spared_group,
                                 root=os.getpid())
