"""What the tests of outages share: what is stored, and how its recovery is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable

from twisted.internet import reactor, task

from iop.store import store
from iop.store.history import History


def number(seq: int) -> bytes:
    return b"%08d" % seq


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await task.deferLater(reactor, 0.01)


def watch(history: History) -> list[bool]:
    """`available` whenever it has changed."""
    changes: list[bool] = []

    class Watched(store.Store):
        """The store of this history from now on."""

        def __setattr__(self, name: str, value: object) -> None:
            if name == "available" and value is not self.available:
                changes.append(bool(value))
            super().__setattr__(name, value)

    history._store.__class__ = Watched
    return changes


async def opened(url: str) -> History:
    """A history that is open."""
    history = History(url, reactor)
    await history.open()
    return history
