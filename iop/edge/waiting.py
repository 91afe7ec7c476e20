"""The runs that wait for a node, each until its deadline, and how fast they go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iop.edge.bus import Bus
from iop.edge.drainrate import DrainRate
from iop.edge.queue import RunQueue, Walk
from iop.edge.run import Run
from iop.edge.slots import Slots
from iop.errors import IOPError, QueueFull, QueueTimeout

PLACED_AGAIN_S = 10.0            # the least that a run waits which was placed before


class Waiting:
    """Those of one edge. `expired(run, error)` is told of one that has waited for too long, and is out already."""

    def __init__(self, queue: RunQueue, slots: Slots, bus: Bus, clock: Any,
                 expired: Callable[[Run, IOPError], object]) -> None:
        self._queue = queue
        self._slots = slots
        self._bus = bus
        self._clock = clock
        self._expired = expired
        self._rate = DrainRate()

    def __len__(self) -> int:
        return len(self._queue)

    def __contains__(self, run: Run) -> bool:
        return run in self._queue

    def position(self, run: Run) -> int:
        """From 1, among those that wait for the same; 0 when it does not wait."""
        return self._queue.position(run)

    def hold(self, owner: str) -> None:
        """Keep a place for an owner's run that is being stored. Raises QueueFull, with the time until a place is free."""
        try:
            self._queue.hold(owner)
        except QueueFull as error:
            error.retry_after_s = self._soon_s()
            raise

    def release(self, owner: str) -> None:
        """That place is not needed any more."""
        self._queue.release(owner)

    def _soon_s(self) -> float:
        return self._rate.wait_s(1, self._clock.seconds())

    def add(self, run: Run, obstacle: IOPError | None = None) -> None:
        """A stored run waits from now on; `obstacle`: for what, where that is known."""
        run.forget_deadline()
        position = self._queue.add(run, self._slots.pool(run.record, run.request))
        waited_s = self._clock.seconds() - run.since_s
        left_s = max(run.request.limits.queue_s - waited_s, PLACED_AGAIN_S if run.record.attempt else 0.0)
        run.deadline = self._clock.callLater(left_s, self._too_late, run)
        self._bus.tell("run_queued", run_id=run.run_id, source=run.request.source, position=position,
                       reason=obstacle.code if obstacle is not None else "")

    def _too_late(self, run: Run) -> None:
        run.deadline = None
        if self.leave(run):
            self._expired(run, self._obstacle(run))

    def _obstacle(self, run: Run) -> IOPError:
        """What it waited for until the end."""
        try:
            obstacle = self._slots.choose(run.record, run.request).obstacle or QueueTimeout()
        except IOPError as error:
            return error
        if isinstance(obstacle, QueueTimeout):
            obstacle.retry_after_s = self._soon_s()
        return obstacle

    def walk(self) -> Walk:
        """To place what can be placed; owners that have as many runs as their keys allow are left out."""
        return self._queue.walk(self._slots.full_for)

    def placed(self, run: Run) -> None:
        """It waits no more: it has had its turn."""
        if self._queue.remove(run, served=True):
            self._rate.departed(self._clock.seconds())
            run.forget_deadline()

    def leave(self, run: Run) -> bool:
        """It waits no more, without having had its turn; False when it did not wait."""
        if not self._queue.remove(run):
            return False
        run.forget_deadline()
        return True

    def stop(self) -> None:
        """Nobody waits any more."""
        for run in self._queue:
            self.leave(run)
