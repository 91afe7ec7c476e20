"""What the node tells of itself: NodeStatus, and whether its backends are there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, gatherResults, maybeDeferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from iop._version import VERSION_TEXT
from iop.interfaces import IHealth, IServers
from iop.node.offers import Backend
from iop.node.router import OfferedTarget
from iop.proto import node_pb2
from iop.requirements import Program
from iop.servers import WARM, TargetHealth, why_not_of

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
        waiting: Deferred[None] = Deferred()
        timer = self._clock.callLater(FIRST_WAIT_S, waiting.callback, None)

        def answered(_: object) -> None:
            if timer.active():
                timer.cancel()
                waiting.callback(None)

        gatherResults([self._check(backend) for backend in new]).addCallback(answered)
        return waiting

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


def node_status(backends: Mapping[str, Backend], watch: HealthWatch, servers: IServers, *, policy_mode: str, draining: bool,
                labels: Mapping[str, str], facts: Mapping[str, str],
                load: node_pb2.MachineLoad | None = None) -> node_pb2.NodeStatus:
    """The whole status; `labels`: the node's own and those the edge gave."""
    status = node_pb2.NodeStatus(version=VERSION_TEXT, policy_mode=policy_mode, draining=draining, labels=labels, facts=facts,
                                 load=load)
    for name, backend in sorted(backends.items()):
        state = status.adapters.add(adapter=name, concurrency=backend.concurrency)
        for target in backend.targets.values():
            health = target_health(watch.of(backend, target.name), target, servers)
            told = state.targets.add(adapter=name, target=target.name, aliases=target.config.aliases,
                                     concurrency=target.config.concurrency, ready=not health.why_not, detail=health.why_not,
                                     retry_safe=_retry_safe(target), takes_input=target.takes_input,
                                     weight=target.config.weight, context_tokens=health.context_tokens)
            if health.warm is not None:
                told.warm = health.warm
    return status


def target_health(checked: TargetHealth, target: OfferedTarget, servers: IServers) -> TargetHealth:
    """How a target is now: of a server of the node's own, more is known than the last check."""
    if target.server is None:
        return checked
    state = servers.state(target.server)
    runs_fail = state == WARM and checked.warm           # or do not: then its sentence is empty
    return TargetHealth(checked.why_not if runs_fail else why_not_of(state), warm=state == WARM,
                        context_tokens=checked.context_tokens)


def _retry_safe(target: OfferedTarget) -> bool:
    """On by default for models, off for programs, whose work has effects."""
    if target.config.HasField("retry_safe"):
        return target.config.retry_safe
    return not any(isinstance(requirement, Program) and not requirement.serves for requirement in target.requirements)
