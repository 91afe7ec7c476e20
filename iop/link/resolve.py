"""The address behind a host name, looked up again before each try (connectTCP itself knows IPv4 only)."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IAddress, IHostResolution, IResolutionReceiver
from zope.interface import implementer

from iop.addresses import address_of, is_loopback
from iop.errors import ConfigError
from iop.link.errors import LinkDown


class Resolution:
    """One host. Where a name has several addresses, each try takes the next."""

    def __init__(self, reactor: Any, host: str, *, loopback_only: bool) -> None:
        self._reactor = reactor
        self._host = host
        self._loopback_only = loopback_only
        self._tries = 0
        self._receiver: _Receiver | None = None

    def address(self) -> Deferred[str]:
        """Fires with an address to connect to; fails with LinkDown, or ConfigError where only loopback is allowed."""
        if address_of(self._host) is not None:
            return succeed(self._host)
        self._receiver = _Receiver()
        self._reactor.nameResolver.resolveHostName(self._receiver, self._host)
        return self._receiver.done.addCallback(self._choose)

    def cancel(self) -> None:
        if self._receiver is not None:
            self._receiver.done.cancel()

    def _choose(self, addresses: list[str]) -> str | Deferred[str]:
        if not addresses:
            return fail(LinkDown(f"The name {self._host} has no address."))
        address = addresses[self._tries % len(addresses)]
        self._tries += 1
        if self._loopback_only and not is_loopback(address):
            return fail(ConfigError(f"{self._host} is {address}, which is not loopback; plain TCP is for loopback only."))
        return address


@implementer(IResolutionReceiver)
class _Receiver:
    """Collects what the resolver tells; `done` fires with the addresses in its order."""

    def __init__(self) -> None:
        self.done: Deferred[list[str]] = Deferred()
        self._addresses: list[str] = []

    def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:
        pass

    def addressResolved(self, address: IAddress) -> None:
        host = getattr(address, "host", "")
        if host and host not in self._addresses:
            self._addresses.append(host)

    def resolutionComplete(self) -> None:
        if not self.done.called:
            self.done.callback(self._addresses)
