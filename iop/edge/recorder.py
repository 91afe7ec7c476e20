"""Batches on their way into history: in order, tried again until they are there.

A history that cannot be written stops nothing that runs: the batches stay in their logs, nothing is acknowledged, and the
node's window holds the rest back. Once it can be written again, everything follows in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.logger import Logger

from iop.edge.runlog import Entry
from iop.errors import HistoryUnavailable

if TYPE_CHECKING:
    from iop.edge.runs import Run

AGAIN_S = 1.0                    # between two tries while history cannot be written

log = Logger()
_Pending = deque[tuple[Entry, dict[str, Any] | None]]


class Recorder:
    """Writes every batch of every run. `written(run, entry)` is called after its commit, in order, once."""

    def __init__(self, history: Any, clock: Any, written: Callable[[Run, Entry], object]) -> None:
        self._history = history
        self._clock = clock
        self._written = written
        self._pending: dict[Run, _Pending] = {}
        self._stalled: set[Run] = set()
        self._again: Any = None
        self.trouble = ""                # why history could not be written the last time; empty when it can

    def write(self, run: Run, entry: Entry, changes: dict[str, Any] | None) -> None:
        """Append `entry` to history, with column `changes` of its run."""
        self._pending.setdefault(run, deque()).append((entry, changes))
        if run not in self._stalled:
            self._send(run, entry, changes)

    def _send(self, run: Run, entry: Entry, changes: dict[str, Any] | None) -> None:
        done = self._history.append(run.run_id, entry.attempt, entry.first_seq, entry.last_seq, entry.packed, changes)
        done.addCallbacks(self._committed, self._failed, callbackArgs=(run, entry), errbackArgs=(run, entry))
        done.addErrback(lambda failure: log.failure("after a commit of run {run_id}", failure, run_id=run.run_id))

    def _committed(self, _: object, run: Run, entry: Entry) -> None:
        pending = self._pending.get(run)
        if not pending or pending[0][0] is not entry:
            return                       # told already, by an earlier try whose answer came late
        pending.popleft()
        if not pending:
            del self._pending[run]
        self.trouble = ""
        self._written(run, entry)

    def _failed(self, failure: Any, run: Run, entry: Entry) -> None:
        if not self.trouble:
            log.error("history did not take {attempt}.{seq} of run {run_id}: {trouble} It is tried again every second; "
                      "running work goes on, nothing is acknowledged.", run_id=run.run_id, attempt=entry.attempt,
                      seq=entry.first_seq, trouble=failure.getErrorMessage())
            if not failure.check(HistoryUnavailable):
                log.failure("and this is not what a history that is away says", failure)
        self.trouble = failure.getErrorMessage()
        self._stalled.add(run)
        if self._again is None:
            self._again = self._clock.callLater(AGAIN_S, self._retry)

    def _retry(self) -> None:
        self._again = None
        stalled, self._stalled = self._stalled, set()
        for run in stalled:
            for entry, changes in tuple(self._pending.get(run, ())):
                self._send(run, entry, changes)

    def stop(self) -> None:
        """Try no more."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
