"""Which addresses may be a model backend. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from urllib.parse import urlsplit

# Never a model backend, whoever lists it: this host under other names, cloud metadata, everyone at once.
NEVER = tuple(ipaddress.ip_network(text) for text in (
    "0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4", "::/128", "fe80::/10", "ff00::/8", "fd00:ec2::/32"))

# Names that a resolver reads as numbers (inet_aton): 2130706433, 0x7f.1, 127.1.
_DISGUISED = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+)){0,3}\.?", re.IGNORECASE)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_never(address: Address) -> bool:
    return any(address in network for network in NEVER if network.version == address.version)


def judge_address(url: str, listed: Collection[str] | None) -> str:
    """Why `url` may not be a backend, as a sentence; empty when it may. `listed`: hosts, or host:port; None: any."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return f"{url[:200]!r} is not a URL."
    if parts.scheme not in ("http", "https") or not host:
        return f"{url[:200]!r} is not a URL of http or https."
    if parts.username is not None or parts.password is not None:
        return "A URL must not carry a user or password."
    address = _address(host)
    if address is None and _DISGUISED.fullmatch(host):
        return f"{host} is a number in disguise; write the address plainly."
    if address is not None and is_never(address):
        return f"{host} is never a model backend (link-local, metadata, unspecified or multicast)."
    if listed is None or host == "localhost" or (address is not None and address.is_loopback):
        return ""
    allowed = {entry.lower().rstrip(".") for entry in listed}
    shown = f"[{host}]" if ":" in host else host
    if allowed & {host, shown, f"{shown}:{port}"}:
        return ""
    return f"{shown}:{port} is not loopback; add {shown} to policy.upstreams in node.yaml."


def _address(host: str) -> Address | None:
    """An IP address; v4 mapped into v6 is v4, and a zone changes nothing."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address
