"""How fast the queue drains, from when runs left it: pure. What a client is told to wait comes from here."""

from __future__ import annotations

import math

MEMORY_S = 30.0                  # of the mean: what happened so long ago counts a third
LEAST_S, MOST_S = 1.0, 60.0      # Claude Code takes more than a minute for a reason not to come again (its gateway protocol)


class DrainRate:
    """An exponentially weighted mean of departures a second."""

    def __init__(self) -> None:
        self._weight = 0.0               # of all departures, as it was at _since_s
        self._since_s = 0.0
        self._first_s: float | None = None

    def departed(self, now_s: float) -> None:
        """A run was placed from the queue."""
        if self._first_s is None:
            self._first_s = now_s
        self._weight = self._now(now_s) + 1
        self._since_s = now_s

    def _now(self, now_s: float) -> float:
        return self._weight * math.exp((self._since_s - now_s) / MEMORY_S)

    def rate(self, now_s: float) -> float:
        """Departures a second, 0 where none are known of. The time before the first one does not count as quiet."""
        if self._first_s is None:
            return 0.0
        age_s = max(now_s - self._first_s, 1.0)
        return self._now(now_s) / (MEMORY_S * (1 - math.exp(-age_s / MEMORY_S)))

    def wait_s(self, ahead: int, now_s: float) -> float:
        """How long until `ahead` more have departed, within what is worth telling a client; 0 where nothing is known."""
        rate = self.rate(now_s)
        return min(max(ahead / rate, LEAST_S), MOST_S) if rate else 0.0
