"""The slots of nodes, as runs take them: found by what nodes offer and by what a run's session holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

from iop.edge.affinity import Affinities
from iop.edge.node import Node
from iop.edge.placement import Choice, Name, Refused, Wanted, choose, could_take, is_none_of
from iop.edge.registry import Registry
from iop.edge.sessions import Sessions
from iop.errors import Conflict, NoSuchTarget, QueueTimeout
from iop.events import now_us
from iop.proto.run_pb2 import RunRequest
from iop.records import RunRecord


class Slots:
    """Those of all nodes of one edge. `concurrency_of(principal)`: how many an owner of keys may have at once, 0: any."""

    def __init__(self, registry: Registry, sessions: Sessions, concurrency_of: Callable[[str], int]) -> None:
        self._registry = registry
        self._sessions = sessions
        self._concurrency_of = concurrency_of
        self._affinities = Affinities()
        self._running: Counter[str] = Counter()      # runs that have a slot, by principal

    def names(self, record: RunRecord) -> Sequence[Name]:
        """Any of these targets will do: what its alias means now."""
        known = self._registry.aliases().get(record.alias) if record.alias else None
        return known or ((record.adapter, record.target),)

    def wanted(self, record: RunRecord, request: RunRequest) -> Wanted:
        """Raises Conflict of its session."""
        names, affinity, holder = self.names(record), None, ""
        if request.session_id:
            holder, names = self._sessions.holder(request.session_id, names)
        if request.affinity:
            affinity = self._affinities.find(request.affinity, _model(record))
        return Wanted(names, request.labels, record.pin, holder, affinity, record.alias)

    def choose(self, record: RunRecord, request: RunRequest, refused: Refused = frozenset()) -> Choice:
        """The place, none of those `refused` (nodes and places), or what keeps the run waiting. Raises NoSuchTarget, and
        Conflict of its session."""
        wanted = self.wanted(record, request)
        candidates = self._registry.candidates(wanted.names, wanted.labels)
        if refused:
            candidates = [one for one in candidates if is_none_of(refused, one)]
            if not candidates:
                return Choice(obstacle=QueueTimeout())
        try:
            choice = choose(wanted, candidates)
        except NoSuchTarget as error:
            reason = next(filter(None, map(self._registry.why_not, wanted.names)), "")
            raise NoSuchTarget(f"{error.message} {reason}") if reason else error from None
        if choice.node_id and self.full_for(record.principal):
            return Choice(obstacle=QueueTimeout(
                f"{record.principal} may have {self._concurrency_of(record.principal)} runs at once, and they took longer "
                "than this one's queue limit."))
        return choice

    def elsewhere(self, record: RunRecord, request: RunRequest, refused: Refused) -> bool:
        """Whether a place that is none of these could carry it out, now or as soon as it has room."""
        try:
            wanted = self.wanted(record, request)
        except Conflict:
            return False
        candidates = () if wanted.only else self._registry.candidates(wanted.names, wanted.labels)
        return any(could_take(wanted, one) and is_none_of(refused, one) for one in candidates)

    def pool(self, record: RunRecord, request: RunRequest) -> Hashable:
        """What is equal for runs that can be placed alike."""
        try:
            wanted = self.wanted(record, request)
        except Conflict:
            return record.run_id         # the next try to place it will tell
        return _model(record), wanted.only, frozenset(request.labels.items())

    def full_for(self, principal: str) -> bool:
        """Whether the owner has as many runs at work as its keys allow."""
        limit = self._concurrency_of(principal)
        return bool(limit) and self._running[principal] >= limit

    def take(self, node: Node, choice: Choice, record: RunRecord, request: RunRequest) -> None:
        """The decision: from here on the slot is taken, for a new attempt."""
        record.adapter, record.target = request.adapter, request.target = choice.name
        record.state, record.node_id, record.placed_us = "placed", node.node_id, now_us()
        record.placement = choice.reason
        record.attempt += 1
        self.keep(node, record, request)
        if request.affinity:
            self._affinities.placed(request.affinity, _model(record), (node.node_id, choice.name))

    def keep(self, node: Node, record: RunRecord, request: RunRequest) -> None:
        """It has a slot there, and its session is that node's."""
        self.hold(node, record)
        if request.session_id:
            self._sessions.placed(request.session_id, node.node_id, record.adapter, record.target)

    def hold(self, node: Node, record: RunRecord) -> None:
        """It has a slot there."""
        if node.reserve(record.run_id, (record.adapter, record.target)):
            self._running[record.principal] += 1

    def release(self, record: RunRecord) -> bool:
        """Give its slot back; False when it had none."""
        node = self._registry.get(record.node_id)
        if node is None or not node.release(record.run_id):
            return False
        self._running[record.principal] -= 1
        if self._running[record.principal] <= 0:
            del self._running[record.principal]
        return True


def _model(record: RunRecord) -> str:
    return record.alias or f"{record.adapter}/{record.target}"
