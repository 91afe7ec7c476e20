"""One node as its edge knows it: what it offers, what it carries, whether it is there. Told by its link and configuration."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from iop.config import NodeEntry
from iop.edge.placement import NO_LABELS, Candidate, Name
from iop.events import now_us
from iop.proto.node_pb2 import ConfigApplied, NodeStatus
from iop.records import NodeView, TargetView

MAX_FAULTS = 100                 # of one node's configuration, shown


class Node:
    """One node, connected or not."""

    def __init__(self, node_id: str) -> None:
        self.node_id = node_id
        self.link: Any = None                        # ILink while it is up
        self.handler: Any = None                     # the ILinkHandler of its last link
        self.status: NodeStatus | None = None        # its last word, kept while it is away
        self.ready = False                           # it has had its verdicts on the present link: orders may be sent
        self.placeable = False                       # and it has told its status on it
        self.draining = False                        # an operator's word
        self._drained = False                        # and its own
        self.entry_labels: dict[str, str] = {}       # from edge.yaml
        self.label_changes: dict[str, str | None] = {}   # an operator's, since
        self.config_faults: list[str] = []
        self.since_us = 0
        self.remote = ""
        self.epoch = 0
        self.instance = ""                           # the present start of its process
        self.offers: dict[Name, TargetView] = {}
        self._slots: dict[str, Name] = {}            # run_id -> what it takes up
        self._taken: Counter[str | Name] = Counter() # by adapter, and by (adapter, target)
        self._capacity: dict[str, int] = {}          # of each adapter

    @property
    def up(self) -> bool:
        return self.link is not None

    @property
    def forgettable(self) -> bool:
        """It is away, holds no runs, and no operator has set anything on it."""
        return not (self.up or self._slots or self.draining or self.label_changes)

    @property
    def takes_nothing(self) -> bool:
        """No new runs: an operator's word, or the node's own."""
        return self.draining or self._drained

    @property
    def labels(self) -> dict[str, str]:
        """The node's own, then edge.yaml's, then an operator's."""
        own = dict(self.status.labels) if self.status is not None else {}
        return _changed(own | self.entry_labels, self.label_changes)

    @property
    def edge_labels(self) -> dict[str, str]:
        """What the node is told of its labels."""
        return _changed(dict(self.entry_labels), self.label_changes)

    def changed_labels(self, changes: dict[str, str | None]) -> dict[str, str | None]:
        """The operator's labels with more changes; to remove what nobody gives is nothing to remember."""
        given = {*self.entry_labels, *(self.status.labels if self.status is not None else ())}
        return {name: value for name, value in (self.label_changes | changes).items() if value is not None or name in given}

    def connected(self, link: Any) -> None:
        self.link, self.ready, self.placeable, self.since_us = link, False, False, now_us()
        self.remote, self.epoch = link.remote, link.epoch

    def disconnected(self) -> None:
        self.link, self.ready, self.placeable, self.since_us = None, False, False, now_us()

    def told_status(self, status: NodeStatus) -> None:
        self.status, self.placeable, self._drained = status, True, status.draining
        self._capacity = {state.adapter: state.concurrency for state in status.adapters}
        self.offers = {
            (state.adapter, target.target): TargetView(
                adapter=state.adapter, target=target.target, aliases=list(target.aliases),
                concurrency=target.concurrency or state.concurrency, running=0, ready=target.ready, detail=target.detail,
                retry_safe=target.retry_safe, takes_input=target.takes_input if target.HasField("takes_input") else None,
                warm=target.warm if target.HasField("warm") else None, weight=target.weight or 1.0,
                context_tokens=target.context_tokens)
            for state in status.adapters for target in state.targets}

    def expect(self, entry: NodeEntry) -> None:
        """What edge.yaml says of it; its offers count until the node has told what it accepts."""
        self.entry_labels = dict(entry.labels)
        if self.status is None:
            self.offers = {
                (adapter.adapter, target.name): TargetView(
                    adapter=adapter.adapter, target=target.name, aliases=list(target.aliases), running=0, ready=False,
                    concurrency=target.concurrency or adapter.concurrency, detail="the node has not connected yet",
                    retry_safe=target.retry_safe, weight=target.weight or 1.0)
                for adapter in entry.adapters for target in adapter.targets}

    def told_config(self, applied: ConfigApplied) -> bool:
        """Keep the faults; whether every part was accepted whole."""
        faults = [f"{fault.path}: {fault.reason}" for part in applied.parts for fault in part.faults]
        faults += [f"{part.path} was rejected" for part in applied.parts if not part.accepted and not part.faults]
        paths = tuple(part.path for part in applied.parts)
        kept = [fault for fault in self.config_faults if not any(within(fault, path) for path in paths)]
        self.config_faults = (kept + faults)[:MAX_FAULTS]
        return not faults

    def reserve(self, run_id: str, name: Name) -> bool:
        """Take a slot for a run, at the moment it is decided; False when it has one here already."""
        if run_id in self._slots:
            return False
        self._slots[run_id] = name
        self._taken[name[0]] += 1
        self._taken[name] += 1
        return True

    def release(self, run_id: str) -> bool:
        """Give its slot back; False when it had none."""
        name = self._slots.pop(run_id, None)
        if name is None:
            return False
        self._taken[name[0]] -= 1
        self._taken[name] -= 1
        return True

    def candidate(self, name: Name, with_labels: bool) -> Candidate | None:
        """For placement; None when it does not offer that. Labels cost more than all the rest."""
        offer = self.offers.get(name)
        if offer is None:
            return None
        at_work, of_adapter = self._taken[name], self._capacity.get(name[0]) or max(offer.concurrency, 1)
        capacity = min(of_adapter, offer.concurrency or of_adapter)
        return Candidate(
            self.node_id, free=min(of_adapter - self._taken[name[0]], capacity - at_work), name=name,
            taken=at_work, running=len(self._slots), capacity=capacity, up=self.up and self.placeable,
            draining=self.takes_nothing, ready=offer.ready, warm=offer.warm is not False or at_work > 0, weight=offer.weight,
            labels=self.labels if with_labels else NO_LABELS)

    def view(self) -> NodeView:
        status = self.status or NodeStatus()
        targets = [msgspec.structs.replace(one, running=self._taken[name], ready=one.ready and self.up)
                   for name, one in sorted(self.offers.items())]
        return NodeView(
            node_id=self.node_id, state="up" if self.up else "down", draining=self.takes_nothing,
            labels=self.labels, targets=targets, running=len(self._slots), version=status.version,
            policy_mode=status.policy_mode, remote=self.remote, since_us=self.since_us, epoch=self.epoch,
            facts=dict(status.facts), load=_load(status), config_faults=list(self.config_faults))


def _load(status: NodeStatus) -> dict[str, Any]:
    if not status.HasField("load"):
        return {}
    load = status.load
    return {"busy": round(load.busy, 3), "memory_used_bytes": load.memory_used_bytes,
            "memory_total_bytes": load.memory_total_bytes,
            "gpus": [{"name": gpu.name, "busy": round(gpu.busy, 3), "memory_used_bytes": gpu.memory_used_bytes,
                      "memory_total_bytes": gpu.memory_total_bytes} for gpu in load.gpus]}


def differ(before: NodeStatus | None, now: NodeStatus) -> bool:
    """Whether one status says something else than another, but for the load of the machine, which changes all the time."""
    if before is None:
        return True
    first, second = NodeStatus(), NodeStatus()
    for copy, status in ((first, before), (second, now)):
        copy.CopyFrom(status)
        copy.ClearField("load")
    return first != second


def within(fault: str, path: str) -> bool:
    """Whether a fault of a configuration (PLACE: reason) is of that place or below it."""
    place = fault.partition(":")[0]
    return place == path or place.startswith(path + "/")


def _changed(labels: dict[str, str], changes: dict[str, str | None]) -> dict[str, str]:
    for name, value in changes.items():
        if value is None:
            labels.pop(name, None)
        else:
            labels[name] = value
    return labels
