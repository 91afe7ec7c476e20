"""Who may knock: bounds on connections that have not been greeted yet (security.md D-15). Pure."""

from __future__ import annotations

import ipaddress
from collections import Counter

UNAUTHENTICATED = 64
PER_SOURCE = 8


def source_of(host: str) -> str | None:
    """What counts as one source: an IPv4 address, a /64 of IPv6; None for this machine, which is exempt."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback:
        return None
    if address.version == 6:
        return str(ipaddress.ip_network((int(address), 64), strict=False))
    return str(address)


class Gate:
    """Counts those inside."""

    def __init__(self, unauthenticated: int = UNAUTHENTICATED, per_source: int = PER_SOURCE) -> None:
        self._unauthenticated = unauthenticated
        self._per_source = per_source
        self._sources: Counter[str] = Counter()
        self.inside = 0

    def enter(self, source: str | None) -> str:
        """Let one in; or the code why not, and then it was not counted."""
        if self.inside >= self._unauthenticated:
            return "too_many_connections"
        if source is not None and self._sources[source] >= self._per_source:
            return "too_many_from_source"
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
