"""What comes of an attempt that is closed: kept apart from its run, each event once."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, DeferredLock

from iop.edge.runlog import trimmed
from iop.proto.run_pb2 import EventBatch


class Late:
    """One at a time, whichever link it comes by: a batch may come again, cut in another way, before the first is stored."""

    def __init__(self, history: Any) -> None:
        self._history = history
        self._lock = DeferredLock()

    def keep(self, batch: EventBatch, packed: bytes) -> Deferred[None]:
        """Fires when history has it."""
        return self._lock.run(lambda: Deferred.fromCoroutine(self._keep(batch, packed)))

    async def _keep(self, batch: EventBatch, packed: bytes) -> None:
        history, run_id, attempt, first_seq = self._history, batch.run_id, batch.attempt, batch.first_seq
        last_seq = first_seq + len(batch.events) - 1
        kept = await history.committed_late(run_id, attempt)
        if last_seq <= kept:
            return
        if first_seq <= kept:
            first_seq, packed = kept + 1, trimmed(batch, kept + 1).packed
        await history.append_late(run_id, attempt, first_seq, last_seq, packed)
