"""Addresses that no model backend can have, whatever a name resolves to: cloud metadata, multicast, nothing. Pure."""

from __future__ import annotations

import ipaddress

_METADATA = ipaddress.ip_address("fd00:ec2::254")


def address_fault(host: str) -> str:
    """A sentence why a connected address is refused, or empty. The node's policy has judged the URL's host before."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ""                # not an IP connection (a UNIX socket, a memory transport)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_link_local or address.is_multicast or address.is_unspecified or address == _METADATA:
        return f"The backend's name leads to {address}, where no model backend may be."
    return ""
