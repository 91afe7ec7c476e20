"""One adapter, configured and built; it is closed when a newer one has taken its place and its last run has ended."""

from __future__ import annotations

from collections.abc import Mapping

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger

from iop.interfaces import IAdapter, IAdapterFactory
from iop.node.router import OfferedTarget

log = Logger()


class Backend:
    """See the module. `targets` by name; `concurrency`: runs at once."""

    def __init__(self, factory: IAdapterFactory, adapter: IAdapter, targets: Mapping[str, OfferedTarget],
                 concurrency: int) -> None:
        self.name: str = factory.name
        self.adapter = adapter
        self.targets = targets
        self.concurrency = concurrency
        self.running = 0
        self._retired = False
        self._closed: Deferred[None] | None = None

    def retire(self) -> None:
        """A newer one has taken its place."""
        self._retired = True
        self._close_if_idle()

    def run_began(self) -> None:
        self.running += 1

    def run_ended(self) -> None:
        self.running -= 1
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._retired and not self.running and self._closed is None:
            self._closed = maybeDeferred(self.adapter.close)
            self._closed.addErrback(lambda failure: log.failure("closing the adapter {name} failed", failure, name=self.name))

    def closed(self) -> Deferred[None] | None:
        """Fires when its adapter has closed; None while it still has work."""
        return self._closed
