"""How the edge itself is: the reactor's lag, the history, the nodes."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import LoopingCall

PROBE_S = 0.5                    # how often the reactor's lag is measured
REMEMBERED = 20                  # probes: the lag told is the worst of the last 10 s
LAG_LIMIT_MS = 2000.0            # beyond, the edge is not ready: its links would soon look dead
BACKLOG_LIMIT = 50_000           # writes that wait for history


class LagProbe:
    """How late a timer of the reactor fires."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self._expected_at = 0.0
        self._lags_s = [0.0] * REMEMBERED
        self._next = 0
        self._loop = LoopingCall(self._probe)
        self._loop.clock = clock

    def start(self) -> None:
        self._expected_at = self._clock.seconds() + PROBE_S
        self._loop.start(PROBE_S, now=False)

    def stop(self) -> None:
        if self._loop.running:
            self._loop.stop()

    def _probe(self) -> None:
        now = self._clock.seconds()
        self._lags_s[self._next] = max(now - self._expected_at, 0.0)
        self._next = (self._next + 1) % REMEMBERED
        # LoopingCall keeps to its grid: what is measured next is measured from where it will be due.
        self._expected_at += PROBE_S
        if self._expected_at <= now:
            self._expected_at = now + PROBE_S - (now - self._expected_at) % PROBE_S

    @property
    def worst_ms(self) -> float:
        """Of the last 10 s, up to now: a reactor that stands still now is not asked."""
        return max(self._lags_s) * 1000


def judge(*, lag_ms: float, backlog: int, trouble: str, nodes_up: int, nodes: int, runs_open: int, queued: int,
          stopping: bool) -> dict[str, object]:
    """The answer of IEdgeService.health. No node being up is worth telling, but the edge itself is ready."""
    reasons = []
    if stopping:
        reasons.append("The edge is stopping.")
    if trouble:
        reasons.append(f"History cannot be written: {trouble}")
    if backlog > BACKLOG_LIMIT:
        reasons.append(f"{backlog} writes wait for history.")
    if lag_ms > LAG_LIMIT_MS:
        reasons.append(f"The reactor is {lag_ms:.0f} ms late.")
    return {"ready": not reasons, "reasons": reasons, "reactor_lag_ms": round(lag_ms, 1), "history_backlog": backlog,
            "nodes_up": nodes_up, "nodes": nodes, "runs_open": runs_open, "queued": queued}
