"""Whether the backends of this node are there: looked at again and again, and more often while one is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, gatherResults, maybeDeferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from iop.interfaces import IHealth
from iop.node.backend import Backend
from iop.node.waiting import at_most
from iop.servers import TargetHealth

log = Logger()

CHECK_EVERY_S = 15.0
AWAY_EVERY_S = 3.0         # where a backend is away: who starts it wants to use it
CHECK_LIMIT_S = 6.0        # an adapter's own limit is 5
FIRST_WAIT_S = 2.0         # a new configuration is told after this long, checked or not
READY, UNCHECKED = TargetHealth(), TargetHealth("It is being looked at.")

Health = Mapping[str, TargetHealth]          # by target


class HealthWatch:
    """Checks the adapters that can be checked; `changed()` is called when an answer differs from the last one."""

    def __init__(self, clock: IReactorTime, backends: Callable[[], Mapping[str, Backend]],
                 changed: Callable[[], None]) -> None:
        self._clock = clock
        self._backends = backends
        self._changed = changed
        self._known: dict[str, tuple[object, Health]] = {}   # adapter name: which adapter answered, and what
        self._loop = LoopingCall(self._round)
        self._loop.clock = clock
        self._whole_round_s = 0.0                            # clock time at which all are checked, also those that are there

    def start(self) -> None:
        self._whole_round_s = self._clock.seconds() + CHECK_EVERY_S
        self._loop.start(AWAY_EVERY_S, now=False)

    def stop(self) -> None:
        if self._loop.running:
            self._loop.stop()

    def of(self, backend: Backend, target: str) -> TargetHealth:
        """How a target is; ready where its adapter cannot tell."""
        if not IHealth.providedBy(backend.adapter):
            return READY
        adapter, health = self._known.get(backend.name, (None, {}))
        return health.get(target, READY) if adapter is backend.adapter else UNCHECKED

    def check_new(self) -> Deferred[None]:
        """Look at adapters that were never looked at; fires when they have answered, or after 2 s."""
        new = [backend for name, backend in self._backends().items()
               if IHealth.providedBy(backend.adapter) and self._known.get(name, (None,))[0] is not backend.adapter]
        if not new:
            return succeed(None)
        return at_most(gatherResults([self._check(backend) for backend in new]), FIRST_WAIT_S, self._clock)

    def look(self, backend: Backend) -> None:
        """Something was done to it: look at it now."""
        if IHealth.providedBy(backend.adapter):
            self._check(backend)

    def _round(self) -> Deferred[Any]:
        whole = self._clock.seconds() >= self._whole_round_s
        if whole:
            self._whole_round_s = self._clock.seconds() + CHECK_EVERY_S
        return gatherResults([self._check(backend) for backend in list(self._backends().values())
                              if IHealth.providedBy(backend.adapter)
                              and (whole or self._away(backend) or IHealth(backend.adapter).doubtful)])

    def _away(self, backend: Backend) -> bool:
        return any(self.of(backend, target).why_not for target in backend.targets)

    def _check(self, backend: Backend) -> Deferred[None]:
        asked = maybeDeferred(IHealth(backend.adapter).check).addTimeout(CHECK_LIMIT_S, self._clock)
        return asked.addCallbacks(self._answered, self._no_answer, callbackArgs=(backend,), errbackArgs=(backend,))

    def _no_answer(self, failure: Failure, backend: Backend) -> None:
        log.warn("the adapter {name} could not tell how it is: {reason}", name=backend.name, reason=failure.getErrorMessage())
        unknown = TargetHealth("Its adapter could not tell; the node's log has the reason.")
        self._answered(dict.fromkeys(backend.targets, unknown), backend)

    def _answered(self, health: Health, backend: Backend) -> None:
        if self._backends().get(backend.name) is not backend:
            return
        if self._known.get(backend.name) != (backend.adapter, health):
            self._known[backend.name] = (backend.adapter, dict(health))
            self._changed()
