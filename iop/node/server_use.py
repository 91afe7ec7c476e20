"""The runs that use a warm model server: as long as there are any, it is not unloaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zope.interface import implementer

from iop.interfaces import IServerUse


@implementer(IServerUse)
class Use:
    """`released(use)` hears of each release, `doubted()` that the server gave no answer."""

    def __init__(self, url: str, released: Callable[[Use], None], doubted: Callable[[], None]) -> None:
        self.url = url
        self._released = released
        self._doubted = doubted

    def release(self) -> None:
        self._released(self)

    def cut_off(self) -> None:
        self._doubted()
        self.release()


class Uses:
    """Those of one server. `released()` is called when there is one less, `doubted()` as each Use says."""

    def __init__(self, clock: Any, released: Callable[[], None], doubted: Callable[[], None]) -> None:
        self.last_s = clock.seconds()             # when one began or ended last
        self._clock = clock
        self._released = released
        self._doubted = doubted
        self._uses: set[Use] = set()

    def __len__(self) -> int:
        return len(self._uses)

    def begin(self, url: str) -> Use:
        use = Use(url, self._remove, self._doubted)
        self._uses.add(use)
        self.last_s = self._clock.seconds()
        return use

    def forget(self) -> None:
        """There is nothing left to use."""
        self._uses.clear()

    def _remove(self, use: Use) -> None:
        if use in self._uses:
            self._uses.discard(use)
            self.last_s = self._clock.seconds()
            self._released()
