"""Which places did not carry a run out, how many times that was, and until when each is not asked again. Pure."""

from __future__ import annotations

from iop.edge.placement import Place

MAX_REFUSALS = 5                 # of one run, by nodes; then it ends with the last one's code


class Refusals:
    """Those of one run. Times are of the clock that the caller reads."""

    __slots__ = ("_until_s", "count")

    def __init__(self) -> None:
        self.count = 0
        self._until_s: dict[str | Place, float] = {}

    @property
    def exhausted(self) -> bool:
        """No further one is to be followed by another try."""
        return self.count >= MAX_REFUSALS

    def keep_from(self, place: str | Place, until_s: float) -> None:
        """A whole node, or a node and what it was to run there, is not asked again before then."""
        self._until_s[place] = until_s

    def standing(self, now_s: float) -> frozenset[str | Place]:
        """The places that are not to be asked now."""
        return frozenset([place for place, until_s in self._until_s.items() if until_s > now_s])
