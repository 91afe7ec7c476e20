"""Looking back at a run: whether history has it whole, and what came after its ending."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import TimeoutError

from iop.edge.packing import unpack
from iop.edge.runs import Runs
from iop.errors import HistoryUnavailable
from iop.proto.run_pb2 import EventBatch
from iop.runs import EventId
from iop.wholeness import Findings

LATE_BYTES = 256 * 1024          # of late events in one page
STORED_S = 10.0                  # the longest that a verification waits for the last commit of its run


class Review:
    """Of the runs of one edge."""

    def __init__(self, history: Any, runs: Runs, clock: Any) -> None:
        self._history = history
        self._runs = runs
        self._clock = clock

    async def verify(self, run_id: str) -> Findings:
        """See IEdgeService. Readers may have a run's ending before history has it: that is waited for."""
        run = self._runs.get(run_id)
        if run is not None and run.record.ended:
            try:
                await self._runs.stored(run).addTimeout(STORED_S, self._clock)
            except TimeoutError:
                raise HistoryUnavailable("The run has ended, and its last events could not be stored yet.") from None
        found: Findings = await self._history.verify(run_id)
        return found

    async def late(self, run_id: str, after: EventId) -> list[EventBatch]:
        """See IEdgeService."""
        await self._runs.record(run_id)
        return [unpack(packed) for packed in await self._history.late(run_id, after, LATE_BYTES)]
