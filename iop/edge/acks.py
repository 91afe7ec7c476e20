"""Acknowledgements: only of what history has committed; of each run at once after a while of quiet, and then at a pace."""

from __future__ import annotations

from collections import Counter
from typing import Any

from iop.edge.registry import Registry
from iop.edge.run import Run
from iop.proto.run_pb2 import EventAck
from iop.runs import EventId

PACE_S = 0.2             # an acknowledgement costs edge and node as much as an event, and only a node whose window is full
WINDOW_SHARE = 4         # waits for one: a quarter of a window goes at once

Key = tuple[str, str, int]       # node_id, run_id, attempt


class Acks:
    """Collects what was committed in one reactor turn or more (a commit's Deferreds all fire in one); then acknowledges."""

    def __init__(self, registry: Registry, clock: Any) -> None:
        self._registry = registry
        self._clock = clock
        self._due: dict[Key, int] = {}           # -> through_seq
        self._sizes: Counter[Key] = Counter()    # bytes of it, and
        self._size = 0                           # of all
        self._call: Any = None
        self._next_at = 0.0                      # by its pace

    def committed(self, run: Run, place: EventId, size: int) -> None:
        """History has a run so far, with `size` bytes more; what the edge made itself has nobody to tell."""
        if run.sent and place.attempt == run.record.attempt:
            self.due(run.record.node_id, run.run_id, place.attempt, place.seq, size)

    def due(self, node_id: str, run_id: str, attempt: int, through_seq: int, size: int = 0) -> None:
        """History has all up to `through_seq`, `size` bytes more; without any it came once more, and is told at once."""
        if not through_seq:
            return
        key = node_id, run_id, attempt
        self._due[key] = through_seq
        self._sizes[key] += size
        self._size += size
        if self._call is None:
            self._call = self._clock.callLater(max(0.0, self._next_at - self._clock.seconds()), self._send)
        if (not size or self._fills(key)) and self._call.getTime() > self._clock.seconds():
            self._call.reset(0)

    def _fills(self, key: Key) -> bool:
        """So much is due that its node may be near the end of a window."""
        node = self._registry.get(key[0])
        if node is None or node.link is None:
            return False
        limits = node.link.limits
        return (self._sizes[key] * WINDOW_SHARE >= limits.run_window_bytes
                or self._size * WINDOW_SHARE >= limits.link_window_bytes)

    def _send(self) -> None:
        self._call = None
        self._next_at = self._clock.seconds() + PACE_S
        due, self._due = self._due, {}
        self._sizes.clear()
        self._size = 0
        for (node_id, run_id, attempt), through_seq in due.items():
            node = self._registry.get(node_id)
            # Before its verdicts a link takes no acknowledgement, and needs none: the verdict names the committed place.
            if node is not None and node.ready:
                node.link.send("event_ack", EventAck(run_id=run_id, attempt=attempt, through_seq=through_seq))
