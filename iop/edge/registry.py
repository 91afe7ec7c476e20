"""The nodes of one edge, and what names mean there. In memory; told by links and configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from iop.config import NodeEntry
from iop.edge.node import Node, within
from iop.edge.placement import Candidate, Name
from iop.errors import NoSuchNode, NoSuchTarget
from iop.records import ModelEntry, TargetView

PROGRAM_ADAPTERS = frozenset(("cli",))   # what runs a program on a node, and so is no model


class Named(NamedTuple):
    """What a name means: any of `names`; on `node_id` only, where that is said."""

    names: tuple[Name, ...]
    node_id: str = ""
    alias: str = ""                  # where it is one


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
                     if within(fault, place)), "")

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
