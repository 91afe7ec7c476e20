"""Acknowledgements: only of what history has committed, and one a run a commit."""

from __future__ import annotations

from typing import Any

from iop.edge.registry import Registry
from iop.edge.run import Run
from iop.proto.run_pb2 import EventAck
from iop.runs import EventId


class Acks:
    """Collects what was committed in one reactor turn (a commit's Deferreds all fire in one) and then acknowledges."""

    def __init__(self, registry: Registry, clock: Any) -> None:
        self._registry = registry
        self._clock = clock
        self._due: dict[tuple[str, str, int], int] = {}   # (node_id, run_id, attempt) -> through_seq

    def committed(self, run: Run, place: EventId) -> None:
        """History has a run so far; what the edge made itself (in an attempt of its own) has nobody to tell."""
        if run.sent and place.attempt == run.record.attempt:
            self.due(run.record.node_id, run.run_id, place.attempt, place.seq)

    def due(self, node_id: str, run_id: str, attempt: int, through_seq: int) -> None:
        """History has all up to `through_seq`."""
        if not through_seq:
            return
        if not self._due:
            self._clock.callLater(0, self._send)
        self._due[node_id, run_id, attempt] = through_seq

    def _send(self) -> None:
        due, self._due = self._due, {}
        for (node_id, run_id, attempt), through_seq in due.items():
            node = self._registry.get(node_id)
            # Before its verdicts a link takes no acknowledgement, and needs none: the verdict names the committed place.
            if node is not None and node.ready:
                node.link.send("event_ack", EventAck(run_id=run_id, attempt=attempt, through_seq=through_seq))
