"""What each node is told of its configuration: all of it when it comes, and later only what changed."""

from __future__ import annotations

from collections.abc import Iterable

from iop.config import LIMITS, LimitsConfig, NodeEntry
from iop.edge.node import Node
from iop.edge.placement import Name
from iop.proto.node_pb2 import AdapterConfig, NodeConfigPayload
from iop.proto.run_pb2 import Limits


def with_defaults(limits: Limits, defaults: LimitsConfig) -> None:
    """Fill in what `limits` leaves open."""
    for name in LIMITS:
        if not getattr(limits, name):
            setattr(limits, name, getattr(defaults, name))


class Configs:
    """The nodes' parts of edge.yaml. `revision` grows over restarts of the edge: it begins at the time of its start."""

    def __init__(self, revision: int) -> None:
        self.revision = revision
        self._adapters: dict[str, dict[str, AdapterConfig]] = {}     # of each node, by adapter
        self._before = self._adapters
        self._queue_s: dict[Name, float] = {}

    def replace(self, entries: Iterable[NodeEntry], defaults: LimitsConfig) -> set[str]:
        """Take in a new edge.yaml; returns the nodes whose adapters changed. `changes()` then tells what."""
        self._before = self._adapters
        self._adapters = {entry.id: {one.adapter: _filled(one, defaults) for one in entry.adapters} for entry in entries}
        self._queue_s = {}
        for adapter in (one for adapters in self._adapters.values() for one in adapters.values()):
            for target in adapter.targets:
                name = adapter.adapter, target.name
                self._queue_s[name] = max(self._queue_s.get(name, 0.0), target.limits.queue_s)
        self.revision += 1
        return {node_id for node_id in self._before.keys() | self._adapters.keys()
                if self._before.get(node_id, {}) != self._adapters.get(node_id, {})}

    def queue_s(self, adapter: str, target: str) -> float:
        """The longest wait that a target's configuration allows; 0 when it says nothing."""
        return self._queue_s.get((adapter, target), 0.0)

    def whole(self, node: Node) -> NodeConfigPayload:
        """All that a node is told when it comes."""
        return NodeConfigPayload(revision=self.revision, whole=True, labels=node.edge_labels,
                                 adapters=self._adapters.get(node.node_id, {}).values())

    def changes(self, node: Node) -> NodeConfigPayload:
        """What the last replace() changed for a node. Labels are always told whole."""
        now, before = self._adapters.get(node.node_id, {}), self._before.get(node.node_id, {})
        return NodeConfigPayload(
            revision=self.revision, labels=node.edge_labels,
            adapters=[one for name, one in now.items() if before.get(name) != one],
            removed_adapters=sorted(before.keys() - now.keys()))

    def labels(self, node: Node) -> NodeConfigPayload:
        """Its labels alone."""
        self.revision += 1
        return NodeConfigPayload(revision=self.revision, labels=node.edge_labels)


def _filled(adapter: AdapterConfig, defaults: LimitsConfig) -> AdapterConfig:
    filled = AdapterConfig()
    filled.CopyFrom(adapter)
    for target in filled.targets:
        with_defaults(target.limits, defaults)
    return filled
