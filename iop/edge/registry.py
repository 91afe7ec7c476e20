"""The nodes of one edge: what they offer, what they carry, who is there. In memory; told by links and configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from iop.config import NodeEntry
from iop.edge.placement import Candidate, Name
from iop.errors import NoSuchNode, NoSuchTarget
from iop.events import now_us
from iop.proto.node_pb2 import ConfigApplied, NodeStatus
from iop.records import ModelEntry, NodeView, TargetView

MAX_FAULTS = 100                 # of one node's configuration, shown
PROGRAM_ADAPTERS = frozenset(("cli",))   # what runs a program on a node, and so is no model


class Named(NamedTuple):
    """What a name means: any of `names`; on `node_id` only, where that is said."""

    names: tuple[Name, ...]
    node_id: str = ""
    alias: str = ""                  # where it is one


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
        kept = [fault for fault in self.config_faults if not any(_within(fault, path) for path in paths)]
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
        taken, of_adapter = self._taken, self._capacity.get(name[0]) or max(offer.concurrency, 1)
        capacity, at_work = min(of_adapter, offer.concurrency or of_adapter), taken[name]
        return Candidate(
            self.node_id, min(of_adapter - taken[name[0]], capacity - at_work), name, len(self._slots), capacity,
            self.link is not None and self.placeable, self.draining or self._drained, offer.ready,
            offer.warm is not False or at_work > 0, offer.weight, self.labels if with_labels else _NO_LABELS)

    def view(self) -> NodeView:
        status = self.status or NodeStatus()
        targets = [msgspec.structs.replace(one, running=self._taken[name], ready=one.ready and self.up)
                   for name, one in sorted(self.offers.items())]
        return NodeView(
            node_id=self.node_id, state="up" if self.up else "down", draining=self.takes_nothing,
            labels=self.labels, targets=targets, running=len(self._slots), version=status.version,
            policy_mode=status.policy_mode, remote=self.remote, since_us=self.since_us, epoch=self.epoch,
            facts=dict(status.facts), config_faults=list(self.config_faults))


_NO_LABELS: dict[str, str] = {}


def _within(fault: str, path: str) -> bool:
    place = fault.partition(":")[0]
    return place == path or place.startswith(path + "/")


def _changed(labels: dict[str, str], changes: dict[str, str | None]) -> dict[str, str]:
    for name, value in changes.items():
        if value is None:
            labels.pop(name, None)
        else:
            labels[name] = value
    return labels


class Registry:
    """All nodes that are configured here or have ever connected to this process."""

    def __init__(self, started_us: int) -> None:
        self._started_us = started_us
        self._nodes: dict[str, Node] = {}
        self._aliases: dict[str, tuple[Name, ...]] | None = None

    def __iter__(self) -> Iterator[Node]:
        return iter(sorted(self._nodes.values(), key=lambda node: node.node_id))

    def configured(self, entries: Iterable[NodeEntry]) -> None:
        """Take in the nodes of edge.yaml; one that is gone from it stays only while it is connected, or something of it is
        still to be done or remembered."""
        kept = {entry.id for entry in entries}
        for entry in entries:
            self.known(entry.id).expect(entry)
        for node in tuple(self._nodes.values()):
            if node.node_id not in kept:
                node.entry_labels = {}
                if node.forgettable:
                    del self._nodes[node.node_id]
        self.changed()

    def changed(self) -> None:
        """What some node offers has changed."""
        self._aliases = None

    def known(self, node_id: str) -> Node:
        """The node, made when it is new."""
        return self._nodes.setdefault(node_id, Node(node_id))

    def node(self, node_id: str) -> Node:
        """The node; raises NoSuchNode."""
        if node_id not in self._nodes:
            raise NoSuchNode(f"There is no node {node_id!r}.")
        return self._nodes[node_id]

    def get(self, node_id: str) -> Node | None:
        return self._nodes.get(node_id)

    def candidates(self, names: Sequence[Name], labels: Mapping[str, str]) -> list[Candidate]:
        """The nodes that offer one of `names`; with their labels where some are asked for."""
        return [one for name in names for node in self._nodes.values()
                if (one := node.candidate(name, bool(labels))) is not None]

    def offered(self, name: Name) -> bool:
        return any(name in node.offers for node in self._nodes.values())

    def retry_safe(self, names: Sequence[Name]) -> bool:
        """Whether every node that offers one of them says that a run which has shown nothing may be begun again."""
        said = [node.offers[name].retry_safe for name in names for node in self._nodes.values() if name in node.offers]
        return bool(said) and all(said)

    def why_not(self, name: Name) -> str:
        """What a node said when it rejected this target; "" when none did."""
        place = f"adapters/{name[0]}/targets/{name[1]}"
        return next((f"{node.node_id} does not accept it: {fault}" for node in self for fault in node.config_faults
                     if _within(fault, place)), "")

    def aliases(self) -> Mapping[str, tuple[Name, ...]]:
        """What each alias means: all the targets that carry it, those of the first node by name first. No alias means
        programs and models at once; there the first one decides."""
        if self._aliases is None:
            found: dict[str, dict[Name, None]] = {}
            for node in self:
                for name, offer in node.offers.items():
                    for alias in (*offer.aliases, offer.target):
                        known = found.setdefault(alias, {})
                        if all(_alike(name, other) for other in known):
                            known[name] = None
            self._aliases = {alias: tuple(names) for alias, names in found.items()}
        return self._aliases

    def named(self, adapter: str, target: str) -> Named:
        """What a request names. Raises NoSuchTarget.

        With an adapter, `target` is one of its targets or node/adapter/target; without one, all that find() takes.
        """
        if not adapter:
            return self.find(target)
        if self.offered((adapter, target)):
            return Named(((adapter, target),))
        node_id, _, rest = target.partition("/")
        named, _, target_there = rest.partition("/")
        if named == adapter and target_there and self.get(node_id) is not None:
            return Named(((adapter, target_there),), node_id)
        why = self.why_not((adapter, target))
        raise NoSuchTarget(f"No node offers {adapter}/{target[:128]}.{' ' + why if why else ''}")

    def find(self, model: str) -> Named:
        """What a model's name means: an exact alias, then adapter/target, then node/adapter/target, split at most twice
        from the left. Raises NoSuchTarget."""
        names = self.aliases().get(model)
        if names is not None:
            return Named(names, alias=model)
        first, _, rest = model.partition("/")
        if rest and self.offered((first, rest)):
            return Named(((first, rest),))
        adapter, _, target = rest.partition("/")
        node = self._nodes.get(first)
        if node is not None and target and (adapter, target) in node.offers:
            return Named(((adapter, target),), first)
        raise NoSuchTarget(f"There is no model {model[:100]!r} here.", hint="GET /v1/models lists the names, and `iop nodes` "
                           "the targets.")

    def ready(self, model: str) -> bool:
        """Whether some node could begin a run of what the name means, were it free. Raises NoSuchTarget."""
        named = self.find(model)
        return any(node.up and node.placeable and not node.takes_nothing
                   and any(name in node.offers and node.offers[name].ready for name in named.names)
                   for node in self._nodes.values() if not named.node_id or node.node_id == named.node_id)

    def models(self) -> list[ModelEntry]:
        ready: dict[Name, list[TargetView]] = {}
        for node in self:
            if node.up and node.placeable and not node.takes_nothing:
                for name, offer in node.offers.items():
                    if offer.ready:
                        ready.setdefault(name, []).append(offer)
        return [_model(alias, names, [offer for name in names for offer in ready.get(name, ())], self._started_us)
                for alias, names in sorted(self.aliases().items())]


def _model(alias: str, names: Sequence[Name], ready: list[TargetView], created_us: int) -> ModelEntry:
    warm = {offer.warm for offer in ready}
    return ModelEntry(
        name=alias, adapter=names[0][0], target=names[0][1], created_us=created_us, ready=bool(ready),
        context_tokens=min((offer.context_tokens for offer in ready if offer.context_tokens), default=0),
        warm=True if True in warm else False if warm == {False} else None)


def _alike(one: Name, other: Name) -> bool:
    return (one[0] in PROGRAM_ADAPTERS) == (other[0] in PROGRAM_ADAPTERS)
