"""What the node tells of itself: NodeStatus."""

from __future__ import annotations

from collections.abc import Mapping

from iop._version import VERSION_TEXT
from iop.interfaces import IServers
from iop.node.backend import Backend
from iop.node.health import HealthWatch
from iop.node.router import OfferedTarget
from iop.proto import node_pb2
from iop.requirements import Program
from iop.servers import WARM, TargetHealth, why_not_of


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
