"""What is decided on the head of a request, before anything of its body is read. No connections, no I/O."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable

from iop.errors import InvalidRequest
from iop.headers import Headers
from iop.keys import KeyRing
from iop.web.auth import authenticate
from iop.web.cors import Cors
from iop.web.errors import BadEncoding, BadHost
from iop.web.request import Request
from iop.web.route import PUBLIC, Route, RouteTable

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class Admission:
    """Decides on the head of a request: which route it is, whether it may, and what is refused before a body is read."""

    def __init__(self, table: RouteTable, keyring_of: Callable[[], KeyRing], host_names: Iterable[str] = (),
                 cors: Cors | None = None) -> None:
        self.table = table
        self.cors = cors or Cors()
        self._keyring_of = keyring_of
        self._names = {name.lower() for name in (*LOOPBACK_NAMES, *host_names)}

    def admit(self, method: bytes, target: bytes, version: str, headers: Headers,
              local_address: str) -> tuple[Request, Route]:
        """The request and its route. Raises an IOPError; the order is: form, Host, route, key, scope."""
        path, query = _split(target)
        if version not in ("1.1", "1.0"):
            raise InvalidRequest("Only HTTP/1.1 and HTTP/1.0 are spoken here.")
        _check_framing(version, headers)
        self._check_host(version, headers, local_address)
        if headers.hasHeader(b"content-encoding"):
            raise BadEncoding()
        request = Request(method.decode("latin-1"), path, query, headers)
        route, request.args = self.table.find(request.method, path)
        request.dialect = route.dialect
        if route.scope != PUBLIC:
            request.principal = authenticate(headers, self._keyring_of)
            request.principal.require(route.scope)
        return request, route

    def _check_host(self, version: str, headers: Headers, local_address: str) -> None:
        """Only names that are ours, against DNS rebinding; the address that was connected to is one of them."""
        hosts = headers.getRawHeaders(b"host") or []
        if len(hosts) > 1 or (not hosts and version == "1.1"):
            raise InvalidRequest("One Host header, please.")
        if not hosts:
            return
        name = _host_name(hosts[0].decode("latin-1"))
        if name not in self._names and not _same_address(name, local_address):
            raise BadHost(f"This edge does not answer to the name {name[:100]!r}.")


def _host_name(text: str) -> str:
    """The name in a Host header, without its port and brackets, in lower case."""
    text = text.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    name, colon, port = text.rpartition(":")
    return name if colon and port.isdigit() else text


def _same_address(name: str, local_address: str) -> bool:
    try:
        return ipaddress.ip_address(name) == ipaddress.ip_address(local_address)
    except ValueError:
        return False


def _split(target: bytes) -> tuple[str, str]:
    try:
        path, _, query = target.decode("ascii").partition("?")
    except UnicodeDecodeError:
        raise InvalidRequest("The request target is not ASCII.") from None
    if not path.startswith("/") and path != "*":
        raise InvalidRequest("The request target must be a path.")
    return path, query


def _check_framing(version: str, headers: Headers) -> None:
    """Where the body ends must not be a matter of taste (RFC 9112 section 6)."""
    codings = headers.getRawHeaders(b"transfer-encoding")
    if codings is None:
        return
    if version != "1.1" or len(codings) != 1 or codings[0].lower() != b"chunked":
        raise InvalidRequest("Transfer-Encoding is `chunked` once, and only in HTTP/1.1.")
