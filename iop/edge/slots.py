"""The slots of nodes, as runs take them: found by what nodes offer and by what a run's session holds."""

from __future__ import annotations

from iop.edge.placement import Choice, Wanted, choose
from iop.edge.registry import Node, Registry
from iop.edge.sessions import Sessions
from iop.errors import NoSuchTarget, QueueTimeout
from iop.events import now_us
from iop.proto.run_pb2 import RunRequest
from iop.records import RunRecord


class Slots:
    """Those of all nodes of one edge."""

    def __init__(self, registry: Registry, sessions: Sessions) -> None:
        self._registry = registry
        self._sessions = sessions

    def choose(self, request: RunRequest, pin: str, refused: frozenset[str] = frozenset()) -> Choice:
        """The node, none of `refused`, or what keeps the run waiting. Raises NoSuchTarget, and Conflict of its session."""
        name = (request.adapter, request.target)
        held_by = self._sessions.node_for(request.session_id, *name) if request.session_id else ""
        candidates = self._registry.candidates(name)
        if refused:
            candidates = [one for one in candidates if one.node_id not in refused]
            if not candidates:
                return Choice(obstacle=QueueTimeout())
        try:
            return choose(Wanted(*name, labels=request.labels, node_id=pin or held_by), candidates)
        except NoSuchTarget as error:
            reason = self._registry.why_not(name)
            raise NoSuchTarget(f"{error.message} {reason}") if reason else error from None

    def take(self, node: Node, record: RunRecord, request: RunRequest) -> None:
        """The decision: from here on the slot is taken, for a new attempt."""
        self.keep(node, record, request)
        record.state, record.node_id, record.placed_us = "placed", node.node_id, now_us()
        record.attempt += 1

    def keep(self, node: Node, record: RunRecord, request: RunRequest) -> None:
        """It has a slot there, and its session is that node's."""
        node.reserve(record.run_id, (record.adapter, record.target))
        if request.session_id:
            self._sessions.placed(request.session_id, node.node_id, record.adapter, record.target)
