"""One thread with one connection: it commits what is queued, and reads in between.

::

    queue --> one transaction of all there is --> answer all --> a slice of a read --> queue ...
                 ^              | fails
                 +--------------+  back-off; what came since joins it, in order

What stands in the queue when it is time for the next commit is that commit. A database that is gone keeps the writes
waiting; a write that can never be stored fails alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from iop.errors import ConfigError, HistoryUnavailable, IOPError
from iop.store.engine import BEGIN, NO_FILE, file_of
from iop.store.faults import Unreachable, hopeless, lasting, refused, sentence, unavailable
from iop.store.statement import execute
from iop.store.work import Read, Work, Write

SLICE_S = 0.005                  # of reading between two commits
PACE = 4                         # from the beginning of a commit to that of the next: as long as it took, for each that
PACE_S = 0.02                    # waited for it up to four. Where one waits at a time, nobody waits for more than that
GROUP_WRITES = 8192              # in one transaction at most, and
GROUP_BYTES = 32 * 1024 * 1024   # of packed batches: what must be held until the commit
FIRST_RETRY_S, LAST_RETRY_S = 0.05, 2.0
CLOSE_PATIENCE_S = 5.0           # for a database that is gone when the store closes
READ_TRIES = 2                   # once more, on a fresh connection


class Worker:
    """What the thread does; everything here runs on it.

    `prepare(connection)` follows each connect, `carry_out(connection, writes)` is the inside of a transaction, and
    `tell(available, reason)` is called whenever the database was lost or found again.
    """

    def __init__(self, work: Work, engine: Engine, prepare: Callable[[Connection], None],
                 carry_out: Callable[[Connection, Sequence[Write]], None], tell: Callable[[bool, str], None]) -> None:
        self._work = work
        self._engine = engine
        self._prepare = prepare
        self._carry_out = carry_out
        self._tell = tell
        self._connection: Connection | None = None
        self._file = NO_FILE                 # what the first connection opened
        self._failed: list[Write] = []
        self._next_at = 0.0                  # by its pace
        self._retry_at = 0.0
        self._retry_s = FIRST_RETRY_S
        self._available = True
        self._close_by: float | None = None

    def open(self, patience_s: float) -> None:
        """Connect and prepare, trying for so long. Raises what `prepare` does, HistoryUnavailable, or ConfigError at once."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                self._connect()
                return
            except Unreachable as error:
                if isinstance(error.__cause__, IOPError):
                    raise error.__cause__ from None
                if hopeless(error.__cause__):
                    raise ConfigError(f"The database {self._engine.url.database} cannot be used ({sentence(error)}); put the "
                                      "right file there, or move this one away to begin anew.") from error.__cause__
                if self._work.closing or time.monotonic() > deadline:
                    raise unavailable(error) from error.__cause__
            time.sleep(FIRST_RETRY_S)

    def run(self) -> None:
        """Until the work is closing and done."""
        try:
            while self._turn():
                pass
        finally:
            self._let_go()

    def _turn(self) -> bool:
        """One commit, one slice of reading, and a rest when there is nothing to do. False when all is over."""
        work = self._work
        work.begin_turn()
        if not self._failed or time.monotonic() >= self._retry_at:
            self._commit_in_pace()
        if work.reads:
            self._slice()
        if work.closing and self._may_end():
            return False
        if not work.reads and (self._failed or not work.writes):
            work.rest(max(self._retry_at - time.monotonic(), 0.001) if self._failed else None)
        return True

    def _may_end(self) -> bool:
        if self._failed:
            if self._close_by is None:
                self._close_by = time.monotonic() + CLOSE_PATIENCE_S
            if time.monotonic() < self._close_by:
                return False
            # Nothing of this was acknowledged, so whoever sent it still has it.
            error = HistoryUnavailable("The history was closed before its database came back.")
            for write in self._failed:
                write.error = error
            self._work.finish(self._failed)
            self._failed = []
            self._work.abandon(error)
        return not self._work.reads and not self._work.writes

    # --- writing ---

    def _commit_in_pace(self) -> None:
        """Commit what there is. A commit costs as much as ten requests; who waits first is soon followed by others."""
        if self._work.writes and not self._work.closing:
            pause_s = self._next_at - time.monotonic()
            if pause_s > 0:
                time.sleep(pause_s)
                self._work.lending.moved()
        begun = time.monotonic()
        group = self._group()
        self._commit(group)
        waited = sum(write.urgent for write in group)
        self._next_at = begun + min((time.monotonic() - begun) * min(waited, PACE), PACE_S)

    def _group(self) -> list[Write]:
        """What failed before and what came since, in order, as much as one transaction takes."""
        group, self._failed = self._failed, []
        group += self._work.take_writes(GROUP_WRITES - len(group), GROUP_BYTES - sum(write.size for write in group))
        dropped = [write for write in group if write.withdrawn]
        if dropped:
            self._work.finish(dropped)
            group = [write for write in group if not write.withdrawn]
        return group

    def _commit(self, group: list[Write]) -> None:
        if not group:
            return
        try:
            self._transaction(group)
        except Exception as error:
            if not lasting(error):
                self._put_off(group, error)
            elif len(group) == 1:
                group[0].error = refused(error)
                self._succeeded(group)
            else:
                self._commit_in_halves(group)
            return
        self._succeeded(group)

    def _commit_in_halves(self, group: list[Write]) -> None:
        """Find the write that can never be stored: the others still are, in order."""
        middle = len(group) // 2
        self._commit(group[:middle])
        if self._failed:             # the database went away meanwhile
            self._failed += group[middle:]
        else:
            self._commit(group[middle:])

    def _transaction(self, group: list[Write]) -> None:
        connection = self._connection or self._connect()
        execute(connection, BEGIN[connection.dialect.name])
        try:
            self._check_file()
            self._carry_out(connection, group)
            self._work.lending.give_back()
            execute(connection, "COMMIT")
        except BaseException:
            self._roll_back(connection)
            raise

    def _roll_back(self, connection: Connection) -> None:
        try:
            execute(connection, "ROLLBACK")
        except SQLAlchemyError:
            self._let_go()       # the connection is gone, or SQLite has rolled back by itself: a new one knows for sure

    def _succeeded(self, group: list[Write]) -> None:
        self._retry_s = FIRST_RETRY_S
        if not self._available:
            self._available = True
            self._tell(True, "")
        self._work.finish(group, committed=True)

    def _put_off(self, group: list[Write], error: Exception) -> None:
        self._let_go()
        self._failed = group
        self._retry_at = time.monotonic() + self._retry_s
        self._retry_s = min(self._retry_s * 2, LAST_RETRY_S)
        if self._available:
            self._available = False
            self._tell(False, unavailable(error).message)

    # --- reading ---

    def _slice(self) -> None:
        """Read until something is answered or the time is up; what is not finished goes behind the others."""
        until = time.monotonic() + SLICE_S
        read = self._work.reads.popleft()
        try:
            connection = self._connection or self._connect()
            if read.running is None:
                read.running = read.reading(connection)
            while True:
                next(read.running)
                self._work.lending.moved()
                if time.monotonic() > until:
                    self._work.reads.append(read)
                    return
        except StopIteration as end:
            read.result = end.value
        except Exception as error:
            if self._again(read, error):
                return
        read.running = None
        self._work.answer(read)

    def _again(self, read: Read, error: Exception) -> bool:
        """Whether to try it once more, from its start."""
        read.running = None
        read.tries += 1
        if lasting(error):
            read.error = refused(error)
            return False
        self._let_go()
        if read.tries < READ_TRIES:
            self._work.reads.appendleft(read)
            return True
        read.error = unavailable(error)
        return False

    # --- the connection ---

    def _connect(self) -> Connection:
        try:
            self._check_file()
            connection = self._engine.connect()
            try:
                self._prepare(connection)
            except BaseException:
                _close(connection)
                raise
        except Exception as error:
            raise Unreachable from error
        self._connection = connection
        self._file = file_of(self._engine.url)
        return connection

    def _check_file(self) -> None:
        """What is written to a file that was deleted or moved away would be gone with this process. Raises Unreachable."""
        if self._file != NO_FILE and file_of(self._engine.url) != self._file:
            raise Unreachable from FileNotFoundError(
                f"{self._engine.url.database} was deleted or replaced while it was in use; put it back, or start this "
                "process again to go on with what is there now")

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        for read in self._work.reads:
            read.running = None      # it has lost its place, and starts again
        if connection is not None:
            _close(connection)
        self._engine.dispose()


def _close(connection: Connection) -> None:
    try:
        connection.invalidate()      # close the socket or file itself: no farewell that a dead server must answer
        connection.close()
    except SQLAlchemyError:
        pass                         # it was gone already
