"""What a kind of fault is, and the table of all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.faults.world import World

POINT_S = 4.0            # what nobody passes in this long is given up


class NothingThere(Exception):
    """There is nothing now that this kind could harm."""


Kind = Callable[[World], Awaitable[str]]
KINDS: dict[str, Kind] = {}


def kind(name: str) -> Callable[[Kind], Kind]:
    def put(function: Kind) -> Kind:
        KINDS[name] = function
        return function
    return put
