"""Acknowledgements: only of what history has committed, and one a run a commit."""

from __future__ import annotations

from typing import Any

from iop.edge.registry import Registry
from iop.edge.runlog import Entry
from iop.edge.runs import Run
from iop.proto.run_pb2 import EventAck


class Acks:
    """Collects what was committed in one reactor turn (a commit's Deferreds all fire in one) and then acknowledges."""

    def __init__(self, registry: Registry, clock: Any) -> None:
        self._registry = registry
        self._clock = clock
        self._due: dict[tuple[str, str, int], int] = {}   # (node_id, run_id, attempt) -> through_seq

    def committed(self, run: Run, entry: Entry) -> None:
        """History has a batch; those that the edge made itself (of an attempt of their own) have nobody to tell."""
        if run.sent and entry.attempt == run.record.attempt:
            self.due(run.record.node_id, run.run_id, entry.attempt, entry.last_seq)

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
