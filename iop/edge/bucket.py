"""A token bucket: it holds what a minute allows, and fills evenly. Pure; times are seconds of any clock that goes on."""

from __future__ import annotations

MINUTE_S = 60.0


class Bucket:
    """`capacity` a minute."""

    __slots__ = ("_at_s", "_level", "capacity")

    def __init__(self, capacity: float, now_s: float) -> None:
        self.capacity = capacity
        self._level = float(capacity)
        self._at_s = now_s

    def level(self, now_s: float) -> float:
        filled = self._level + max(0.0, now_s - self._at_s) * self.capacity / MINUTE_S
        return min(filled, self.capacity)

    def take(self, amount: float, now_s: float) -> None:
        """Also more than there is."""
        self._level, self._at_s = self.level(now_s) - amount, now_s

    def resize(self, capacity: float, now_s: float) -> None:
        """Another capacity, with as much taken as before."""
        if capacity != self.capacity:
            taken = self.capacity - self.level(now_s)
            self.capacity, self._level, self._at_s = capacity, capacity - taken, now_s

    def wait_s(self, amount: float, now_s: float) -> float:
        """Until there is so much."""
        return max(0.0, amount - self.level(now_s)) * MINUTE_S / self.capacity
