"""Whether a backend that answers its health checks also answers runs. Pure.

::

    closed --3 failures in a row--> open --pause over--> trying --a run fails--> open (for twice as long)
       ^                              |                     |
       +--a run completes, or a check succeeds after one that did not----------+
"""

from __future__ import annotations

from iop.proto.run_pb2 import Outcome

FAILURES = 3
PAUSE_S, LONGEST_PAUSE_S = 30.0, 300.0


class Breaker:
    """Of one target. While it is open the target is told as not ready; a run that comes all the same is tried."""

    def __init__(self) -> None:
        self._failures = 0
        self._last = ""
        self._pause_s = PAUSE_S
        self._open_until = 0.0
        self._away = False

    def ended(self, kind: str, outcome: Outcome, now: float) -> bool:
        """How a run ended; whether that opened or closed it. Only what the backend itself broke counts: a refusal of 4xx, a
        cancel or a limit says nothing.
        """
        was_open = self._open_until > now
        if kind == "completed":
            self._close()
        elif kind == "failed" and _is_broken(outcome):
            self._failures += 1
            self._last = outcome.message
            if self._failures >= FAILURES and not was_open:
                self._open_until = now + self._pause_s
                self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        return was_open is not (self._open_until > now)

    def checked(self, why_not: str, now: float) -> str:
        """The answer of a health check, "" for ready, as it may be told."""
        if why_not:
            self._away = True
            return why_not
        if self._away:
            self._away = False
            self._close()
        if now >= self._open_until:
            return ""
        return f"Its last {self._failures} runs failed, though the health check passes. The last one: {self._last}"

    def _close(self) -> None:
        self._failures, self._pause_s, self._open_until = 0, PAUSE_S, 0.0


def _is_broken(outcome: Outcome) -> bool:
    """Unreachable, silent or an error of the server's own, before anything was said."""
    if outcome.code != "upstream_error":
        return False
    return outcome.upstream_status >= 500 or (outcome.upstream_status == 0 and outcome.retryable)
