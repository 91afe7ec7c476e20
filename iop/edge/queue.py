"""Runs that wait for a node: bounded, by priority, then in fair turns. Pure; the dispatcher owns the clock.

::

    pool         what can be placed alike: a model, a pin, labels. Only runs of one pool wait for one another.
     └─ share    a priority and a key's owner; shares of one priority take turns, one run each
         └─ flow  a conversation of that owner (session or affinity); flows take turns within their share

A share or a flow that is new, or has just had its turn, stands at the end of its line. So nobody waits for more than one
run of each other owner, however many those have asked for, and a line that never becomes empty starves nobody.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from iop.edge.run import Run
from iop.errors import QueueFull

NEWCOMERS = 10                   # a tenth of the limit, and one, are places for owners who have none

Entry = tuple[Any, ...]


class _Line:
    """Parts that take turns, sorted by their entries; each entry begins with what the line is sorted by."""

    def __init__(self) -> None:
        self.parts: dict[Any, Any] = {}
        self.order: list[Entry] = []     # entries; the last item is the part's key

    def put(self, part: Any, entry: Entry | None) -> None:
        """Give a part its place; None: take it out."""
        if part.entry is not None:
            del self.order[bisect_left(self.order, part.entry)]
        part.entry = entry
        if entry is None:
            del self.parts[part.key]
        else:
            self.parts[part.key] = part
            insort(self.order, entry)


class _Flow:
    """The waiting runs of one conversation, by arrival."""

    rank = 0

    def __init__(self, key: str) -> None:
        self.key = key
        self.entry: Entry | None = None  # (turn, key)
        self.runs: list[Run] = []

    @property
    def count(self) -> int:
        return len(self.runs)


class _Share:
    """What waits of one owner in one priority of a pool."""

    def __init__(self, key: tuple[int, str], pool: _Pool) -> None:
        self.key = key                   # -priority, owner
        self.rank = key[0]
        self.entry: Entry | None = None  # (-priority, turn, key)
        self.pool = pool
        self.flows = _Line()
        self.count = 0


class _Pool:
    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.shares = _Line()


class RunQueue:
    """The waiting runs of one edge."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._turns = itertools.count(1)
        self._pools: dict[Hashable, _Pool] = {}
        self._places: dict[str, tuple[_Share, _Flow]] = {}   # by run_id
        self._held: Counter[str] = Counter()     # places that are kept, by owner
        self._owned: Counter[str] = Counter()    # those, and the runs that wait

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Run]:
        """Pool by pool, in the order in which they are to be placed; the queue may change while it is walked."""
        return iter([run for pool in self._pools.values() for run in _in_order(pool)])

    def __contains__(self, run: Run) -> bool:
        return run.run_id in self._places

    def hold(self, owner: str) -> None:
        """Keep one place for an owner's run that is being stored. Raises QueueFull.

        Who has no run here finds a few places more than the limit: a queue that one owner has filled is not full for others.
        """
        more = self.limit // NEWCOMERS + 1 if self.limit and not self._owned[owner] else 0
        if len(self._places) + self._held.total() >= self.limit + more:
            raise QueueFull(f"The queue is full: {len(self._places)} runs are waiting.")
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
        pool = self._pools.setdefault(pool_key, _Pool(pool_key))
        key = -record.priority, record.principal
        share = pool.shares.parts.get(key)
        if share is None:
            share = _Share(key, pool)
            pool.shares.put(share, (key[0], next(self._turns), key))
        name = request.session_id or request.affinity
        flow = share.flows.parts.get(name)
        if flow is None:
            flow = _Flow(name)
            share.flows.put(flow, (next(self._turns), name))
        insort(flow.runs, run, key=_arrival)
        share.count += 1
        self._owned[record.principal] += 1
        self._places[run.run_id] = share, flow
        return _position(share, flow, run)

    def position(self, run: Run) -> int:
        """From 1, among the runs of its pool; 0 when it is not in."""
        place = self._places.get(run.run_id)
        return _position(*place, run) if place is not None else 0

    def remove(self, run: Run, *, served: bool = False) -> bool:
        """Take it out; False when it is not in. `served`: it was placed, which was the turn of its owner."""
        place = self._places.pop(run.run_id, None)
        if place is None:
            return False
        share, flow = place
        del flow.runs[bisect_left(flow.runs, run.arrival, key=_arrival)]
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

    def __init__(self, pools: dict[Hashable, _Pool], places: dict[str, tuple[_Share, _Flow]],
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

    def _first(self, pool: _Pool) -> tuple[Entry, Run] | None:
        for entry in pool.shares.order:
            if not self._held(entry[-1][1]):
                run = self._of_share(pool.shares.parts[entry[-1]])
                if run is not None:
                    return entry, run
        return None

    def _of_share(self, share: _Share) -> Run | None:
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


def _arrival(run: Run) -> int:
    return run.arrival


def _entry(found: tuple[Entry, Run]) -> Entry:
    return found[0]


def _position(share: _Share, flow: _Flow, run: Run) -> int:
    """How many of its pool are placed before it, if no more come; and one."""
    nth = _ahead(share.flows, flow, bisect_left(flow.runs, run.arrival, key=_arrival))
    return _ahead(share.pool.shares, share, nth) + 1


def _ahead(line: _Line, part: _Flow | _Share, nth: int) -> int:
    """What stands before the nth of a part (from 0), where all parts of one rank take turns."""
    first = bisect_left(line.order, part.entry)
    if not nth and line.parts[line.order[0][-1]].rank == part.rank:
        return first             # one of each of those, since a part that is there is not empty
    before = 0
    for place, entry in enumerate(line.order):
        other = line.parts[entry[-1]]
        if other.rank < part.rank:
            before += other.count
        elif other is part:
            before += nth
        elif other.rank == part.rank:
            before += min(other.count, nth + (place < first))
    return before


def _in_order(pool: _Pool) -> list[Run]:
    placed = [(_position(share, flow, run), run.arrival, run) for share in pool.shares.parts.values()
              for flow in share.flows.parts.values() for run in flow.runs]
    return [run for _, _, run in sorted(placed, key=lambda found: found[:2])]
