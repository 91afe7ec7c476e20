"""Where a run goes: pure. Everything that can be known is in the arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from iop.errors import IOPError, NoNode, NoSuchTarget, QueueTimeout


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a run asks of a node. `node_id`: the only one that will do, or ""."""

    adapter: str
    target: str
    labels: Mapping[str, str] = field(default_factory=dict)
    node_id: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that offers the adapter and target, as it is now."""

    node_id: str
    free: int                        # how many more runs of this target it can take now
    running: int = 0                 # all its runs
    capacity: int = 1                # of the adapter
    up: bool = True
    draining: bool = False
    ready: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """A node, or what the run ends with when it has waited for one too long: NoNode or QueueTimeout."""

    node_id: str = ""
    obstacle: IOPError | None = None


def choose(wanted: Wanted, candidates: Iterable[Candidate]) -> Choice:
    """The least busy node that can take the run now, else what it has to wait for.

    A backend that its node's check could not reach is only a second choice: when no other offers the target, the run goes
    there all the same and ends with the backend's own error at once, instead of waiting for somebody to start it.

    Raises NoSuchTarget when waiting would not help: nobody offers it, or not the node that it must go to.
    """
    offering = list(candidates)
    if not offering:
        raise NoSuchTarget(f"No node offers {wanted.adapter}/{wanted.target}.")
    if wanted.node_id:
        offering = [one for one in offering if one.node_id == wanted.node_id]
        if not offering:
            raise NoSuchTarget(f"The node {wanted.node_id} does not offer {wanted.adapter}/{wanted.target}.")
    able = [one for one in offering if one.up and not one.draining and _carries(one, wanted.labels)]
    if not able:
        return Choice(obstacle=NoNode(_why(wanted, offering)))
    ready = [one for one in able if one.ready] or able
    free = [one for one in ready if one.free > 0]
    if not free:
        return Choice(obstacle=QueueTimeout())
    return Choice(node_id=min(free, key=_busy).node_id)


def _carries(candidate: Candidate, labels: Mapping[str, str]) -> bool:
    return all(candidate.labels.get(name) == value for name, value in labels.items())


def _busy(candidate: Candidate) -> tuple[float, int, str]:
    """The share of its slots that are taken; then the number of its runs; then the name, so that it is always the same."""
    return (1 - candidate.free / max(candidate.capacity, 1), candidate.running, candidate.node_id)


def _why(wanted: Wanted, offering: list[Candidate]) -> str:
    """One sentence for the nodes that would do otherwise, the most hopeful first."""
    name = f"{wanted.adapter}/{wanted.target}"
    carrying = [one for one in offering if _carries(one, wanted.labels)]
    if not carrying:
        labels = ", ".join(f"{key}={value}" for key, value in sorted(wanted.labels.items()))
        return f"No node that offers {name} carries the labels {labels}."
    states = ", ".join(f"{one.node_id} is {'draining' if one.up else 'down'}" for one in carrying[:5])
    return f"No node that offers {name} is ready: {states}."
