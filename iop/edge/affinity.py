"""Where runs that belong together were placed last: bounded, in memory. What is forgotten is only a cold cache."""

from __future__ import annotations

from iop.edge.placement import Place

LIMIT = 10_000                   # conversations; about 3 MB


class Affinities:
    """Affinity and model -> place; the one that was not used for the longest time is forgotten first."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._places: dict[tuple[str, str], Place] = {}

    def find(self, affinity: str, model: str) -> Place | None:
        return self._places.get((affinity, model))

    def placed(self, affinity: str, model: str, place: Place) -> None:
        """A run with this affinity went there."""
        key = affinity, model
        self._places.pop(key, None)
        self._places[key] = place
        if len(self._places) > self._limit:
            del self._places[next(iter(self._places))]
