"""Runs that wait for a node: bounded, by priority, then by arrival. Pure; the dispatcher owns the clock."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple

from iop.edge.run import Run
from iop.errors import QueueFull


class _Place(NamedTuple):
    minus_priority: int
    arrival: int                     # of each run another
    run_id: str


def _place(run: Run) -> _Place:
    return _Place(-run.record.priority, run.arrival, run.run_id)


class RunQueue:
    """The waiting runs of one edge."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._order: list[_Place] = []
        self._runs: dict[str, Run] = {}
        self._held = 0

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Run]:
        """In the order in which they are to be placed; may change while it is walked."""
        return iter([self._runs[place.run_id] for place in self._order])

    def __contains__(self, run: Run) -> bool:
        return run.run_id in self._runs

    def hold(self) -> None:
        """Keep one place for a run that is being stored. Raises QueueFull."""
        if len(self._order) + self._held >= self.limit:
            raise QueueFull(f"The queue is full: {len(self._order)} runs are waiting.")
        self._held += 1

    def release(self) -> None:
        """The place that was kept is not needed, or is taken now by add()."""
        self._held -= 1

    def add(self, run: Run) -> int:
        """Put `run` in; returns its position, from 1. One that was accepted before is not refused for lack of room."""
        place = _place(run)
        insort(self._order, place)
        self._runs[run.run_id] = run
        return bisect_left(self._order, place) + 1

    def remove(self, run: Run) -> bool:
        """Take it out; False when it is not in."""
        if self._runs.pop(run.run_id, None) is None:
            return False
        del self._order[bisect_left(self._order, _place(run))]
        return True
