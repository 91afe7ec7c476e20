"""Ends all processes of one run: INT, TERM, KILL with time in between, then whatever is left, until nothing is.

The group gets each signal at once, and what left the group is found by the run's marker, its session or its parents.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet import threads
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from iop.node import processes

log = Logger()

LEFT_BEHIND_S = 1.0       # what outlives its program has this long between TERM and KILL
SWEEP_LIMIT_S = 12.0      # KILL again until none is left, at most this long
LOOK_AGAIN_S = 0.03       # a process in the middle of an exec shows no marker for an instant


class Waits:
    """Waiting that can be cut short: one waiter at a time."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._wake: Deferred[None] | None = None

    def wake(self) -> None:
        if self._wake is not None:
            wake, self._wake = self._wake, None
            wake.callback(None)

    def sleep(self, seconds: float, deaf: bool = False) -> Deferred[None]:
        """Fires after `seconds`, or when woken; a deaf one cannot be."""
        waiting: Deferred[None] = Deferred()
        timer = self._reactor.callLater(seconds, waiting.callback, None)

        def over(value: None) -> None:
            if timer.active():
                timer.cancel()
            if self._wake is waiting:
                self._wake = None

        waiting.addCallback(over)
        if not deaf:
            self._wake = waiting
        return waiting


class Ladder:
    """The signals to one run. `reaped()` says whether its program has ended: its pid may be another's then."""

    def __init__(self, reactor: Any, waits: Waits, run_id: str, pid: int, reaped: Callable[[], bool]) -> None:
        self.steps: list[str] = []       # signals that a stop sent, in order
        self.hurried = False             # no more patience: KILL
        self._reactor = reactor
        self._waits = waits
        self._run_id = run_id
        self._pid = pid
        self._reaped = reaped
        self._marker = f"IOP_RUN_ID={run_id}".encode()
        self._since_ticks = processes.start_ticks(pid)
        self._known = {pid: self._since_ticks}   # pid: start ticks, of all that were seen

    async def climb(self, int_s: float, term_s: float) -> bool:
        """The whole ladder; whether the program has ended."""
        for name, wait_s in (("SIGINT", int_s), ("SIGTERM", term_s)):
            if self.hurried:
                break
            if not await self._signal(name):
                break
            self.steps.append(name)
            if await self._gone(wait_s):
                return True
        if await self._signal("SIGKILL"):
            self.steps.append("SIGKILL")
        deadline = self._reactor.seconds() + SWEEP_LIMIT_S
        while not self._reaped() and self._reactor.seconds() < deadline:
            await self._waits.sleep(deadline - self._reactor.seconds())
        return self._reaped()

    async def sweep(self, grace_s: float) -> int:
        """End what is left of the run; the number that could not be ended, -1 when that cannot be known."""
        try:
            if await self._none_left():
                return 0
            if grace_s:
                log.info("run {run_id}: its program left processes behind; ending them", run_id=self._run_id)
                await self._signal("SIGTERM")
                if await self._gone(grace_s):
                    return 0
            deadline = self._reactor.seconds() + SWEEP_LIMIT_S
            while self._reactor.seconds() < deadline:
                await self._signal("SIGKILL")
                await self._waits.sleep(LOOK_AGAIN_S, deaf=True)
                if await self._none_left():
                    return 0
            return len(await self._look())
        except OSError as failure:
            log.warn("run {run_id}: its processes cannot be looked up: {reason}", run_id=self._run_id, reason=str(failure))
            return -1

    def kill_group(self) -> None:
        """Without looking: the last resort."""
        self._signal_group(signal.SIGKILL)

    async def _signal(self, name: str) -> int:
        """Send one signal to each process of the run once; the number of them."""
        number = getattr(signal, name)
        if not self._reaped():
            await self._look()      # before the signal, which may cut the threads that lead to some of them
        group = self._pid if self._signal_group(number) else 0
        found = await self._look(number, group)
        return len(found) or int(bool(group))

    def _signal_group(self, number: int) -> bool:
        """All of the program's group at once, while its number is still its own."""
        if self._reaped():
            return False
        try:
            os.killpg(self._pid, number)
        except OSError:             # the launcher has no session yet
            return False
        return True

    async def _gone(self, wait_s: float) -> bool:
        """Whether none is left within `wait_s`; looks at once when the program exits, else ever more rarely."""
        deadline = self._reactor.seconds() + wait_s
        pause_s = 0.05
        while not self.hurried:
            left_s = deadline - self._reactor.seconds()
            if left_s <= 0:
                return False
            await self._waits.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 1.5, 0.5)
            if self._reaped() and await self._none_left():
                return True
        return False

    async def _none_left(self) -> bool:
        """Two looks: a process in the middle of an exec shows no marker for an instant."""
        if await self._look():
            return False
        await self._waits.sleep(LOOK_AGAIN_S, deaf=True)
        return not await self._look()

    async def _look(self, number: int = 0, spared_group: int = 0) -> list[processes.Process]:
        """What is left of the run, each given signal `number`."""
        look = partial(processes.members, self._marker, dict(self._known), (self._pid,), self._since_ticks, number=number,
                       spared_group=spared_group)
        found = await threads.deferToThreadPool(self._reactor, self._reactor.getThreadPool(), look)
        self._known.update((process.pid, process.start_ticks) for process in found)
        return found
