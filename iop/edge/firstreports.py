"""After a start: nothing that was queued before is placed until all nodes have told what they carry out, or time is up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iop.edge.registry import Registry

REPORTED_S = 5.0                 # the longest that it is waited for


class FirstReports:
    """Was history set back meanwhile, a node may have under way what seems to be queued. `over()` is called when no more
    is waited for."""

    def __init__(self, registry: Registry, clock: Any, over: Callable[[], object]) -> None:
        self._registry = registry
        self._clock = clock
        self._over = over
        self._timer: Any = None

    @property
    def awaited(self) -> bool:
        return self._timer is not None

    def begin(self) -> None:
        """Wait from now on, unless that has begun."""
        if self._timer is None:
            self._timer = self._clock.callLater(REPORTED_S, self._end)

    def came(self) -> None:
        """One more node has reported."""
        if self._timer is not None and all(node.ready for node in self._registry):
            self._timer.cancel()
            self._end()

    def _end(self) -> None:
        self._timer = None
        self._over()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
