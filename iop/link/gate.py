"""Who may knock: bounds on connections that are not greeted yet, and penalties for sources that misuse them. Pure.

Penalties add up as OpenSSH's PerSourcePenalties do: a source is kept out once it has gathered 15 s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from ipaddress import ip_network

from iop.addresses import address_of

UNAUTHENTICATED = 64
PER_SOURCE = 8
PENALTY_ACTS_S = 15.0
PENALTY_MOST_S = 600.0
SOURCES = 10_000                     # remembered at once
PURGE_S = 1.0                        # between two walks through all of them
PENALTIES_S = {"auth_failed": 5.0, "handshake_timeout": 1.0, "tls_failed": 1.0, "decode_error": 30.0, "out_of_state": 30.0,
               "frame_too_large": 30.0}


def source_of(host: str) -> str | None:
    """What counts as one source: an IPv4 address, a /64 of IPv6; None for this machine, which is exempt."""
    address = address_of(host)
    if address is None:
        return host
    if address.is_loopback:
        return None
    if address.version == 6:
        return str(ip_network((int(address), 64), strict=False))
    return str(address)


class Gate:
    """Counts those inside, and remembers who misbehaved. `now`: monotonic seconds."""

    def __init__(self, now: Callable[[], float], unauthenticated: int = UNAUTHENTICATED,
                 per_source: int = PER_SOURCE) -> None:
        self.inside = 0
        self._now = now
        self._unauthenticated = unauthenticated
        self._per_source = per_source
        self._sources: Counter[str] = Counter()
        self._penalties: dict[str, tuple[float, bool]] = {}    # source: (until, is kept out)
        self._next_purge_s = float("-inf")

    def enter(self, source: str | None) -> str:
        """Let one in; or the code why not, and then it was not counted."""
        if self.inside >= self._unauthenticated:
            return "too_many_connections"
        if source is not None and self._sources[source] >= self._per_source:
            return "too_many_from_source"
        if source is not None and self._is_kept_out(source):
            return "penalty"
        self.inside += 1
        if source is not None:
            self._sources[source] += 1
        return ""

    def leave(self, source: str | None) -> None:
        """One that was let in has been greeted, or is gone."""
        self.inside -= 1
        if source is not None:
            self._sources[source] -= 1
            if self._sources[source] <= 0:
                del self._sources[source]

    def punish(self, source: str | None, code: str) -> None:
        """Add what a code costs to a source's penalty."""
        if source is None or code not in PENALTIES_S:
            return
        now_s = self._now()
        if len(self._penalties) >= SOURCES and now_s >= self._next_purge_s:
            self._next_purge_s = now_s + PURGE_S
            self._penalties = {key: entry for key, entry in self._penalties.items() if entry[0] > now_s}
        if len(self._penalties) >= SOURCES and source not in self._penalties:
            return
        until_s, kept_out = self._penalties.get(source, (now_s, False))
        until_s = min(max(until_s, now_s) + PENALTIES_S[code], now_s + PENALTY_MOST_S)
        self._penalties[source] = until_s, kept_out or until_s - now_s >= PENALTY_ACTS_S

    def _is_kept_out(self, source: str) -> bool:
        until_s, kept_out = self._penalties.get(source, (0.0, False))
        if until_s > self._now():
            return kept_out
        self._penalties.pop(source, None)
        return False
