"""The clients that a run is for: when the last one leaves, it ends. Only runs that somebody attends have any."""

from __future__ import annotations

from typing import Any

from twisted.logger import Logger

from iop.edge.dispatch import Dispatcher
from iop.edge.run import Run
from iop.edge.runs import Runs
from iop.proto.run_pb2 import Source

CUT_OFF = "The edge was started again, and the client is gone."

log = Logger()


class Clients:
    """Those of all runs of one edge."""

    def __init__(self, runs: Runs, dispatcher: Dispatcher, clock: Any) -> None:
        self._runs = runs
        self._dispatcher = dispatcher
        self._clock = clock

    def expect(self) -> None:
        """The edge was started again, which cut all of them off, however it ended: each may come again for so long."""
        for run in self._runs:
            if run.request.HasField("detach_s"):
                self._clock.callLater(run.request.detach_s, self._cut_off, run)

    def _cut_off(self, run: Run) -> None:
        if not run.clients:
            self.leave(run.run_id, run.request.source, CUT_OFF)

    def attend(self, run_id: str) -> None:
        run = self._runs.get(run_id)
        if run is not None:
            run.clients += 1

    def leave(self, run_id: str, source: Source, reason: str) -> None:
        """One is gone; a run that is nobody's now is cancelled."""
        run = self._runs.get(run_id)
        if run is None:
            return
        run.clients -= 1
        if run.clients <= 0:
            self._dispatcher.cancel(run, source, reason).addErrback(
                lambda failure: log.warn("run {run_id} is being stopped, which is not stored: {trouble}", run_id=run_id,
                                         trouble=failure.getErrorMessage()))
