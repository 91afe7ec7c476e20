"""What a link asks of the TCP connection below it, and what it can tell of who is there."""

from __future__ import annotations

import socket
from typing import Any

from iop.addresses import host_port

USER_TIMEOUT_MS = 15_000             # unacknowledged bytes end the connection after this, not after 15 minutes
READ_BYTES = 256 * 1024              # at once, when a link is busy: what one read brings of a run is handled together


def looks_like(start: bytes) -> str:
    """What people point at a link's port by mistake."""
    if start[:2] == b"\x16\x03":
        return ": a TLS ClientHello"
    if start in (b"GET ", b"POST", b"PUT ", b"HEAD", b"PRI "):
        return ": HTTP"
    if start == b"SSH-":
        return ": SSH"
    return ""


def remote_of(transport: Any) -> str:
    peer = transport.getPeer()
    host = getattr(peer, "host", None)
    return str(peer) if host is None else host_port(host, peer.port)


def tune(transport: Any) -> None:
    transport.bufferSize = READ_BYTES
    transport.setTcpNoDelay(True)
    transport.setTcpKeepAlive(1)
    _set_user_timeout(transport)


def _set_user_timeout(transport: Any) -> None:
    """Linux only: TCP_USER_TIMEOUT (RFC 5482) on the socket below the transport, and below its TLS."""
    handle = transport.getHandle()
    if not isinstance(handle, socket.socket):
        handle = getattr(getattr(transport, "transport", None), "getHandle", lambda: None)()
    if isinstance(handle, socket.socket) and hasattr(socket, "TCP_USER_TIMEOUT"):
        handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
