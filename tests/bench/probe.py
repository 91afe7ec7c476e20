"""How long a reactor stands still: a timer that looks how late it fires."""

from __future__ import annotations

import time
from typing import Any


def waiting_s(blocks_s: list[float], total_s: float, share: float) -> float:
    """What all but `share` of the moments of `total_s` would wait at most, when the reactor stood still for `blocks_s`.

    Something that comes while it stands still waits for the rest of that; what comes at any other moment does not wait.
    Counting fired timers instead would count a second's standstill as one of many.
    """
    low, high = 0.0, max(blocks_s, default=0.0)
    for _ in range(40):
        middle = (low + high) / 2
        if sum(max(block - middle, 0.0) for block in blocks_s) > share * total_s:
            low = middle
        else:
            high = middle
    return high


class Probe:
    """Looks every `period_s` at the reactor whose thread makes it."""

    def __init__(self, reactor: Any, period_s: float = 0.005) -> None:
        self._reactor = reactor
        self._period_s = period_s
        self._begun = reactor.seconds()
        self._blocks: list[float] = []
        self._works: list[float] = []
        self._again()

    def _again(self) -> None:
        self._expected = self._reactor.seconds() + self._period_s
        self._worked = time.thread_time()
        self._reactor.callLater(self._period_s, self._look)

    def _look(self) -> None:
        late = self._reactor.seconds() - self._expected
        if late > 0:
            self._blocks.append(late)
            self._works.append(min(late, time.thread_time() - self._worked))
        self._again()

    def take(self) -> dict[str, float]:
        """Milliseconds since the last time: by the clock, and (`cpu`) how much of that the thread itself worked, which is
        what remains of it on a machine with a core to spare."""
        now = self._reactor.seconds()
        blocks, self._blocks = [*self._blocks, max(now - self._expected, 0.0)], []
        works, self._works = self._works, []
        total, self._begun = max(now - self._begun, 1e-9), now
        return {"p99_ms": 1000 * waiting_s(blocks, total, 0.01), "worst_ms": 1000 * max(blocks),
                "cpu_p99_ms": 1000 * waiting_s(works, total, 0.01), "cpu_worst_ms": 1000 * max(works, default=0.0),
                "total_s": total}
