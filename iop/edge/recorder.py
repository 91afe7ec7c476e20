"""Batches on their way into history: in order, a few large writes at a time, tried again until they are there.

::

    nothing is under way --> all that waits goes to history, in one write; the next one not within 50 ms, unless it is much
                             or says that a run began or ended
    a write is under way --> what comes meanwhile is the next one, one row a run

A history that cannot be written stops nothing that runs: the batches stay in their logs, nothing is acknowledged, and the
node's window holds the rest back. Once it can be written again, everything follows in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from twisted.logger import Logger

from iop.edge.packing import MERGED_BYTES, joined
from iop.edge.run import Run
from iop.edge.runlog import Entry
from iop.errors import HistoryUnavailable
from iop.records import BatchRow

PACE_S = 0.05                    # between two writes: a commit costs as much as a hundred events, and only a node whose
PACE_BYTES = 256 * 1024          # window is full waits for one: a quarter of a run's window goes at once
AGAIN_S = 1.0                    # between two tries while history cannot be written

log = Logger()


class Row:
    """A row of history to be: consecutive entries of one run, and what they change of it.

    Once it was sent it stays as it is, so that trying again writes the same row.
    """

    __slots__ = ("changes", "entries", "run", "sent", "size")

    def __init__(self, run: Run, entry: Entry, changes: dict[str, Any] | None) -> None:
        self.run = run
        self.entries = [entry]
        self.changes = changes
        self.size = entry.size
        self.sent = False

    def add(self, entry: Entry, changes: dict[str, Any] | None) -> bool:
        """Take one more entry; False when it has to be another row."""
        last = self.entries[-1]
        follows = (entry.attempt, entry.first_seq) == (last.attempt, last.last_seq + 1)      # a gap follows nothing
        if self.sent or not follows or self.size + entry.size > MERGED_BYTES:
            return False
        self.entries.append(entry)
        self.size += entry.size
        if changes:
            self.changes = {**(self.changes or {}), **changes}
        return True

    def whole(self) -> BatchRow:
        """As history takes it."""
        first, last = self.entries[0], self.entries[-1]
        return BatchRow(self.run.run_id, first.attempt, first.first_seq, last.last_seq,
                        joined([entry.packed for entry in self.entries], first.first_seq), self.changes)


class Recorder:
    """Writes every batch of every run. `written(run, entries)` is called after their commit, in order, once for each.

    `refused(run)` is called when history will never take what a run did; what was to be written of it until then is not.
    """

    def __init__(self, history: Any, clock: Any, written: Callable[[Run, Sequence[Entry]], object],
                 refused: Callable[[Run], object]) -> None:
        self._history = history
        self._clock = clock
        self._written = written
        self._refused = refused
        self._pending: dict[Run, deque[Row]] = {}    # all that is not known to be committed
        self._waiting: list[Row] = []                # of these, what is to be sent
        self._under_way = 0              # writes
        self._waiting_bytes = 0
        self._urgent = False             # what waits changes what people see of a run
        self._next_at = 0.0              # when the next write is due
        self._paced: Any = None
        self._stalled: set[Run] = set()
        self._again: Any = None
        self.trouble = ""                # why history could not be written the last time; empty when it can

    def write(self, run: Run, entry: Entry, changes: dict[str, Any] | None) -> None:
        """Append `entry` to history, with column `changes` of its run, at the next flush or soon after."""
        self._waiting_bytes += entry.size
        if changes:
            self._urgent = True
        rows = self._pending.get(run)
        if rows is None:
            rows = self._pending[run] = deque()
        elif rows[-1].add(entry, changes):
            return
        row = Row(run, entry, changes)
        rows.append(row)
        if run not in self._stalled:
            self._waiting.append(row)

    @property
    def backlog(self) -> int:
        """Rows that history was not given yet."""
        return len(self._waiting)

    def flush(self) -> None:
        """Called when a read has told all it has."""
        if self._under_way or not self._waiting:
            return
        wait_s = self._next_at - self._clock.seconds()
        if self._urgent or wait_s <= 0 or self._waiting_bytes >= PACE_BYTES:
            self.hurry()
        elif self._paced is None:
            self._paced = self._clock.callLater(wait_s, self._due)

    def _due(self) -> None:
        self._paced = None
        self.flush()

    def hurry(self) -> None:
        """Give history all that waits: what is written next of a run's columns must not overtake it."""
        if self._waiting:
            rows, self._waiting = self._waiting, []
            self._waiting_bytes, self._urgent = 0, False
            self._next_at = self._clock.seconds() + PACE_S
            if self._paced is not None:
                self._paced.cancel()
                self._paced = None
            self._send(rows)

    def _send(self, rows: list[Row]) -> None:
        self._under_way += 1
        for row in rows:
            row.sent = True
        done = self._history.append([row.whole() for row in rows])
        done.addCallbacks(self._committed, self._failed, callbackArgs=(rows,), errbackArgs=(rows,))
        done.addErrback(lambda failure: log.failure("after a commit", failure))

    def _committed(self, _: object, rows: list[Row]) -> None:
        self._under_way -= 1
        self.trouble = ""
        for row in rows:
            pending = self._pending.get(row.run)
            if not pending or pending[0] is not row:
                continue                 # told already, by an earlier try whose answer came late
            pending.popleft()
            if not pending:
                del self._pending[row.run]
            self._written(row.run, row.entries)
        self.flush()

    def _failed(self, failure: Any, rows: list[Row]) -> None:
        self._under_way -= 1
        runs = {row.run for row in rows}
        if failure.check(HistoryUnavailable):
            self._away(failure, rows)
        elif len(runs) == 1:
            self._give_up(runs.pop(), failure)
            return
        self._stalled |= runs            # where one of several is refused, each is tried by itself
        self._waiting = [row for row in self._waiting if row.run not in self._stalled]
        if self._again is None:
            self._again = self._clock.callLater(AGAIN_S, self._retry)

    def _away(self, failure: Any, rows: list[Row]) -> None:
        if not self.trouble:
            log.error("history did not take {count} batches, the first of run {run_id}: {trouble} They are tried again every "
                      "second; running work goes on, nothing is acknowledged.", count=len(rows), run_id=rows[0].run.run_id,
                      trouble=failure.getErrorMessage())
        self.trouble = failure.getErrorMessage()

    def _give_up(self, run: Run, failure: Any) -> None:
        """Trying again cannot help."""
        if self._pending.pop(run, None) is None:
            return                       # given up before, or told as written
        log.failure("history can never take what run {run_id} did", failure, run_id=run.run_id)
        self._stalled.discard(run)
        self._waiting = [row for row in self._waiting if row.run is not run]
        self._refused(run)
        self.flush()

    def _retry(self) -> None:
        """Each run by itself, so that a row which can never be stored holds up no other run."""
        self._again = None
        stalled, self._stalled = self._stalled, set()
        for run in stalled:
            if run in self._pending:
                self._send(list(self._pending[run]))

    def stop(self) -> None:
        """Try no more; what waited for its pace goes now."""
        self.hurry()
        if self._again is not None:
            self._again.cancel()
            self._again = None
