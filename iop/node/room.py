"""Which model servers may be in memory at once: what must be unloaded so that another one fits. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Held(NamedTuple):
    """A server that takes part of the budget."""

    name: str
    bytes: int
    idle: bool           # nobody uses it or waits for it, so that it may be unloaded
    used_s: float        # when it was used last
    leaving: bool = False    # it is being unloaded


def room_for(needed: int, budget: int, held: Sequence[Held]) -> list[str] | None:
    """Who must be unloaded before `needed` bytes are free, the least recently used first; [] when they are free, or will be
    once those that leave have left. None: even without all idle ones they would not be. `budget` 0: no limit."""
    missing = needed - free(budget, held) if budget else 0
    return _enough(missing, [one for one in held if one.idle])


def must_yield(needed: int, budget: int, held: Sequence[Held]) -> list[str]:
    """Who must go so that a server that has waited long gets its turn, whether somebody uses it or not: idle ones first."""
    missing = needed - free(budget, held)
    return _enough(missing, held) or []


def free(budget: int, held: Iterable[Held]) -> int:
    return budget - sum(one.bytes for one in held if not one.leaving)


def _enough(missing: int, candidates: Sequence[Held]) -> list[str] | None:
    found: list[str] = []
    for one in sorted(candidates, key=lambda one: (not one.idle, one.used_s)):
        if missing <= 0:
            break
        if one.bytes and not one.leaving:
            found.append(one.name)
            missing -= one.bytes
    return found if missing <= 0 else None
