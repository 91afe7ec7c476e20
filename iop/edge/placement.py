"""Where a run goes, and why: pure. Everything that can be known is in the arguments.

::

    the node of its session, or the one that was named    no other will do
      > labels                                            nodes that do not carry them all are out
      > ready                                             a backend that its node could not reach is a second choice
      > affinity     where runs like it were before, unless that is full and another is free (it is *spilled*)
      > warm         the model is in its backend's memory
      > least busy   by its own runs' share of its slots, divided by its weight; then the node with fewer runs
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from iop.errors import IOPError, NoNode, NoSuchTarget, QueueTimeout

Name = tuple[str, str]           # adapter, target
Place = tuple[str, Name]         # a node, and what it is to run there
Refused = Set[str | Place]       # whole nodes, and places

NO_LABELS: Mapping[str, str] = {}


class Wanted(NamedTuple):
    """What a run asks of a node. Where `node_id` or `holder` is set, no other node will do."""

    names: Sequence[Name]            # any of these targets
    labels: Mapping[str, str] = NO_LABELS
    node_id: str = ""                # as it was asked for
    holder: str = ""                 # the node of its session
    affinity: Place | None = None    # where runs like it were before
    alias: str = ""                  # the name that means those targets

    @property
    def only(self) -> str:
        """The one node that will do; "" where any may."""
        return self.node_id or self.holder


class Candidate(NamedTuple):
    """A node and a target that it offers, as they are now."""

    node_id: str
    free: int                        # how many more runs of this target it can take now
    name: Name = ("", "")
    taken: int = 0                   # runs of this target
    running: int = 0                 # all runs of the node
    capacity: int = 1                # how many runs of this target it can take at all
    up: bool = True
    draining: bool = False
    ready: bool = True
    warm: bool = True                # False: its backend has to load the model first
    weight: float = 1.0
    labels: Mapping[str, str] = NO_LABELS


class Choice(NamedTuple):
    """A node, a target and the reason; or what the run ends with when it has waited for too long: NoNode or QueueTimeout."""

    node_id: str = ""
    name: Name = ("", "")
    reason: str = ""
    obstacle: IOPError | None = None


def choose(wanted: Wanted, candidates: Iterable[Candidate]) -> Choice:
    """The best node that can take the run now, else what it has to wait for.

    A backend that its node's check could not reach is only a second choice: when no other offers the target, the run goes
    there all the same and ends with the backend's own error at once, instead of waiting for somebody to start it.

    Raises NoSuchTarget when waiting would not help: nobody offers it, or not the node that it must go to.
    """
    offering = list(candidates)
    if not offering:
        raise NoSuchTarget(f"No node offers {_called(wanted)}.")
    if wanted.only:
        offering = [one for one in offering if one.node_id == wanted.only]
        if not offering:
            raise NoSuchTarget(f"The node {wanted.only} does not offer {_called(wanted)}.")
    able = [one for one in offering if _is_able(wanted, one)]
    if not able:
        return Choice(obstacle=NoNode(_why(wanted, offering)))
    ready = [one for one in able if one.ready] or able
    free = [one for one in ready if one.free > 0]
    if not free:
        return Choice(obstacle=QueueTimeout())
    best, reason = _best(wanted, ready, free)
    return Choice(best.node_id, best.name, reason)


def is_none_of(refused: Refused, candidate: Candidate) -> bool:
    return candidate.node_id not in refused and (candidate.node_id, candidate.name) not in refused


def could_take(wanted: Wanted, candidate: Candidate) -> bool:
    """Whether it is ready for the run, but for its room."""
    return candidate.ready and _is_able(wanted, candidate)


def _is_able(wanted: Wanted, candidate: Candidate) -> bool:
    return candidate.up and not candidate.draining and (not wanted.labels or _carries(candidate, wanted.labels))


def _best(wanted: Wanted, ready: list[Candidate], free: list[Candidate]) -> tuple[Candidate, str]:
    if wanted.only:
        return min(free, key=_busy), "pinned" if wanted.node_id else "session"
    if len(ready) == 1:
        return free[0], "only one"
    spilled = ""
    if wanted.affinity is not None:
        near = [one for one in ready if (one.node_id, one.name) == wanted.affinity]
        if near and near[0].free > 0:
            return near[0], "affinity"
        spilled = f"spilled from {near[0].node_id}: full" if near else ""
    warm = [one for one in free if one.warm] or free
    reason = "only one free" if len(free) == 1 else "warm" if len(warm) < len(free) else "least busy"
    return min(warm, key=_busy), spilled or reason


def _carries(candidate: Candidate, labels: Mapping[str, str]) -> bool:
    return all(candidate.labels.get(name) == value for name, value in labels.items())


def _busy(candidate: Candidate) -> tuple[float, int, str, Name]:
    """How busy it would be with one more, by its weight; then the number of its runs; then the names, so that it is always
    the same. Only runs of its own count, since targets of one adapter of a node share their free slots."""
    share = (candidate.taken + 1) / (max(candidate.capacity, 1) * (candidate.weight or 1.0))
    return (share, candidate.running, candidate.node_id, candidate.name)


def _called(wanted: Wanted) -> str:
    return wanted.alias or "/".join(wanted.names[0])


def _why(wanted: Wanted, offering: list[Candidate]) -> str:
    """One sentence for the nodes that would do otherwise, the most hopeful first."""
    name = _called(wanted)
    carrying = [one for one in offering if _carries(one, wanted.labels)]
    if not carrying:
        labels = ", ".join(f"{key}={value}" for key, value in sorted(wanted.labels.items()))
        return f"No node that offers {name} carries the labels {labels}."
    states = {one.node_id: "draining" if one.up else "down" for one in carrying}
    told = ", ".join(f"{node_id} is {state}" for node_id, state in list(states.items())[:5])
    return f"No node that offers {name} is ready: {told}."
