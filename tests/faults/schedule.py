"""Which faults, in which order, in which worlds: all of it follows from the seed. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

ROLL_BACK = "rolled back"
MOST = 31                # faults of one world, the roll-back at its end included
ONLY_SQLITE = "history disk full"


@dataclass
class Plan:
    """One world: its seed, what keeps its history, its nodes, and the kinds in order."""

    seed: str
    kinds: list[str] = field(default_factory=list)
    postgresql: bool = False
    nodes: int = 2
    programs: int = 8        # runs under way at any time
    streams: int = 2
    edge: dict[str, float] = field(default_factory=dict)


def plan(seed: int, count: int, kinds: list[str], postgresql: bool) -> list[Plan]:
    """Worlds with `count` faults in all; each kind as often as every other, but for one.

    Each world ends with a roll-back. `postgresql`: every other world has its history there, where a full disk is not ours
    to make; the others have twice as many of them.
    """
    chance = random.Random(seed)
    worlds = max(1, round(count / MOST))
    plans = [Plan(f"{seed}.{number}", postgresql=postgresql and number % 2 == 1, nodes=chance.choice((2, 2, 3)),
                  edge=chance.choice(EDGES)) for number in range(worlds)]
    deck: list[str] = []
    while len(deck) < count - worlds:
        deck += chance.sample(kinds, len(kinds))
    del deck[max(0, count - worlds):]
    full = [name for name in deck if name == ONLY_SQLITE]
    rest = [name for name in deck if name != ONLY_SQLITE]
    on_sqlite = [one for one in plans if not one.postgresql]
    for number, name in enumerate(full):
        on_sqlite[number % len(on_sqlite)].kinds.append(name)
    for number, one in enumerate(plans):
        room = (count - worlds) * (number + 1) // worlds - (count - worlds) * number // worlds - len(one.kinds)
        one.kinds += [rest.pop(0) for _ in range(min(max(0, room), len(rest)))]
    for number, name in enumerate(rest):
        plans[number % worlds].kinds.append(name)
    for one in plans:
        chance.shuffle(one.kinds)
        one.kinds.append(ROLL_BACK)
    return plans


# Small windows hold programs back; a short patience ends runs as node_lost, whose late events are then kept apart.
EDGES: tuple[dict[str, float], ...] = (
    {"lost_after_s": 60.0}, {"lost_after_s": 60.0}, {"lost_after_s": 60.0, "run_window_bytes": 65536},
    {"lost_after_s": 4.0}, {"lost_after_s": 60.0, "tail_bytes": 65536})
