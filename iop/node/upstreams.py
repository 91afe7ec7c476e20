"""Which addresses may be a model backend. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from urllib.parse import urlsplit

from iop.addresses import address_of, is_loopback, is_never_backend

# Names that a resolver reads as numbers (inet_aton): 2130706433, 0x7f.1, 127.1.
_DISGUISED = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+)){0,3}\.?", re.IGNORECASE)


def judge_address(url: str, listed: Collection[str] | None) -> str:
    """Why `url` may not be a backend, as a sentence; empty when it may. `listed`: hosts, or host:port; None: any."""
    return _judged(url, None if listed is None else tuple(listed))


@lru_cache(256)
def _judged(url: str, listed: tuple[str, ...] | None) -> str:
    """Every run asks again, and the answer stays: only what the words say is judged here."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return f"{url[:200]!r} is not a URL."
    if parts.scheme not in ("http", "https") or not host:
        return f"{url[:200]!r} is not a URL of http or https."
    if parts.username is not None or parts.password is not None:
        return "A URL must not carry a user or password."
    address = address_of(host)
    if address is None and _DISGUISED.fullmatch(host):
        return f"{host} is a number in disguise; write the address plainly."
    if address is not None and is_never_backend(address):
        return f"{host} is never a model backend (link-local, metadata, unspecified or multicast)."
    if listed is None or is_loopback(host):
        return ""
    allowed = {entry.lower().rstrip(".") for entry in listed}
    shown = f"[{host}]" if ":" in host else host
    if allowed & {host, shown, f"{shown}:{port}"}:
        return ""
    return f"{shown}:{port} is not loopback; add {shown} to policy.upstreams in node.yaml."
