"""Fair turns among waiting runs: who stands where, and how many go first. Pure.

::

    pool         what can be placed alike: a model, a pin, labels. Only runs of one pool wait for one another.
     └─ share    a priority and a key's owner; shares of one priority take turns, one run each
         └─ flow  a conversation of that owner (session or affinity); flows take turns within their share

A share or a flow that is new, or has just had its turn, stands at the end of its line. So nobody waits for more than one
run of each other owner, however many those have asked for, and a line that never becomes empty starves nobody.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable
from typing import Any

from iop.edge.run import Run

Entry = tuple[Any, ...]          # (rank, turn, key) of a share, (turn, key) of a flow


class Line:
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


class Flow:
    """The waiting runs of one conversation, by arrival."""

    rank = 0

    def __init__(self, key: str) -> None:
        self.key = key
        self.entry: Entry | None = None  # its place in its share's line
        self.runs: list[Run] = []

    @property
    def count(self) -> int:
        return len(self.runs)


class Share:
    """What waits of one owner in one priority of a pool."""

    def __init__(self, key: tuple[int, str], pool: Pool) -> None:
        self.key = key                   # -priority, owner
        self.rank = key[0]
        self.entry: Entry | None = None  # its place in the pool's line
        self.pool = pool
        self.flows = Line()
        self.count = 0


class Pool:
    """What waits for the same places."""

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.shares = Line()


def arrival_of(run: Run) -> int:
    return run.arrival


def position_of(share: Share, flow: Flow, run: Run) -> int:
    """How many of its pool are placed before it, if no more come; and one."""
    nth = _ahead(share.flows, flow, bisect_left(flow.runs, run.arrival, key=arrival_of))
    return _ahead(share.pool.shares, share, nth) + 1


def _ahead(line: Line, part: Flow | Share, nth: int) -> int:
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


def in_order(pool: Pool) -> list[Run]:
    """All of it, as it is to be placed if no more come."""
    placed = [(position_of(share, flow, run), run.arrival, run) for share in pool.shares.parts.values()
              for flow in share.flows.parts.values() for run in flow.runs]
    return [run for _, _, run in sorted(placed, key=lambda found: found[:2])]
