"""Runs that wait for a node: bounded, by priority, then in fair turns (iop.edge.turns). Pure."""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Hashable, Iterator

from iop.edge.run import Run
from iop.edge.turns import Entry, Flow, Pool, Share, arrival_of, in_order, position_of
from iop.errors import QueueFull

NEWCOMERS = 10                   # a tenth of the limit, and one, are places for owners who have none


class RunQueue:
    """The waiting runs of one edge."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._turns = itertools.count(1)
        self._pools: dict[Hashable, Pool] = {}
        self._places: dict[str, tuple[Share, Flow]] = {}   # by run_id
        self._held: Counter[str] = Counter()     # places that are kept, by owner
        self._owned: Counter[str] = Counter()    # those, and the runs that wait

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Run]:
        """Pool by pool, in the order in which they are to be placed; the queue may change while it is walked."""
        return iter([run for pool in self._pools.values() for run in in_order(pool)])

    def __contains__(self, run: Run) -> bool:
        return run.run_id in self._places

    def hold(self, owner: str) -> None:
        """Keep one place for an owner's run that is being stored. Raises QueueFull.

        Who has no run here finds a few places more than the limit: a queue that one owner has filled is not full for others.
        """
        more = self.limit // NEWCOMERS + 1 if self.limit and not self._owned[owner] else 0
        taken = len(self._places) + self._held.total()
        if taken >= self.limit + more:
            raise QueueFull(f"The queue is full: all of its {taken} places are taken.")
        self._held[owner] += 1
        self._owned[owner] += 1

    def release(self, owner: str) -> None:
        """The place that was kept is not needed, or is taken now by add()."""
        self._held[owner] -= 1
        self._give_up(owner)

    def _give_up(self, owner: str) -> None:
        self._owned[owner] -= 1
        if not self._owned[owner]:
            del self._owned[owner], self._held[owner]

    def add(self, run: Run, pool_key: Hashable = "") -> int:
        """Put `run` in; returns its position in its pool, from 1. One that was accepted before is not refused for lack of
        room."""
        self.remove(run)                 # never twice
        record, request = run.record, run.request
        pool = self._pools.setdefault(pool_key, Pool(pool_key))
        key = -record.priority, record.principal
        share = pool.shares.parts.get(key)
        if share is None:
            share = Share(key, pool)
            pool.shares.put(share, (key[0], next(self._turns), key))
        name = request.session_id or request.affinity
        flow = share.flows.parts.get(name)
        if flow is None:
            flow = Flow(name)
            share.flows.put(flow, (next(self._turns), name))
        insort(flow.runs, run, key=arrival_of)
        share.count += 1
        self._owned[record.principal] += 1
        self._places[run.run_id] = share, flow
        return position_of(share, flow, run)

    def position(self, run: Run) -> int:
        """From 1, among the runs of its pool; 0 when it is not in."""
        place = self._places.get(run.run_id)
        return position_of(*place, run) if place is not None else 0

    def remove(self, run: Run, *, served: bool = False) -> bool:
        """Take it out; False when it is not in. `served`: it was placed, which was the turn of its owner."""
        place = self._places.pop(run.run_id, None)
        if place is None:
            return False
        share, flow = place
        del flow.runs[bisect_left(flow.runs, run.arrival, key=arrival_of)]
        share.count -= 1
        self._give_up(run.record.principal)
        if not flow.runs:
            share.flows.put(flow, None)
        elif served:
            share.flows.put(flow, (next(self._turns), flow.key))
        if not share.count:
            share.pool.shares.put(share, None)
        elif served:
            share.pool.shares.put(share, (share.key[0], next(self._turns), share.key))
        if not share.pool.shares.parts:
            self._pools.pop(share.pool.key, None)
        return True

    def walk(self, held: Callable[[str], bool]) -> Walk:
        """To place what can be placed; the runs of an owner that is `held` are left out."""
        return Walk(self._pools, self._places, held)


class Walk:
    """One look through the queue, which changes under it as its runs are placed."""

    def __init__(self, pools: dict[Hashable, Pool], places: dict[str, tuple[Share, Flow]],
                 held: Callable[[str], bool]) -> None:
        self._pools = pools
        self._places = places
        self._held = held
        self._stuck: set[Hashable] = set()
        self._passed: set[str] = set()

    def next(self) -> Run | None:
        """The run whose turn it is, of those that were not passed over and are not stuck."""
        firsts = [found for key, pool in self._pools.items() if key not in self._stuck
                  if (found := self._first(pool)) is not None]
        return min(firsts, key=_entry)[1] if firsts else None

    def _first(self, pool: Pool) -> tuple[Entry, Run] | None:
        for entry in pool.shares.order:
            if not self._held(entry[-1][1]):
                run = self._of_share(pool.shares.parts[entry[-1]])
                if run is not None:
                    return entry, run
        return None

    def _of_share(self, share: Share) -> Run | None:
        for entry in share.flows.order:
            for run in share.flows.parts[entry[-1]].runs:
                if run.run_id not in self._passed:
                    return run
        return None

    def passed(self, run: Run) -> None:
        """This one cannot be placed now; others of its pool may."""
        self._passed.add(run.run_id)

    def stuck(self, run: Run) -> None:
        """Nothing can be placed of what waits for the same."""
        place = self._places.get(run.run_id)
        if place is not None:
            self._stuck.add(place[0].pool.key)


def _entry(found: tuple[Entry, Run]) -> Entry:
    return found[0]
