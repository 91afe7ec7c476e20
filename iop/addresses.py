"""Hosts and addresses as people write them: which of them only this machine reaches, which no backend can have. Pure."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Never a model backend, whoever lists it: this host under other names, cloud metadata, everyone at once.
NEVER = tuple(ipaddress.ip_network(text) for text in (
    "0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4", "::/128", "fe80::/10", "ff00::/8", "fd00:ec2::/32"))


def address_of(host: str) -> Address | None:
    """The IP address that `host` is, None for a name. v4 mapped into v6 is v4, and a zone changes nothing."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it. A name other than localhost could mean anything."""
    address = address_of(host)
    return host == "localhost" if address is None else address.is_loopback


def is_never_backend(address: Address) -> bool:
    return any(address in network for network in NEVER if network.version == address.version)


def host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
