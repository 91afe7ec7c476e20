"""A database with its threads, as the reactor sees it: open, close, health, and who waits for what.

The history of an edge and the record of a node are both one of these.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.engine import URL
from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from iop.errors import ConfigError, HistoryUnavailable, IOPError
from iop.store.engine import make_engine, make_file, shares_connection
from iop.store.lock import FileLock, InUse, take_session_lock
from iop.store.migrate import migrate
from iop.store.patience import Patience
from iop.store.work import Reading, Work, Write
from iop.store.worker import Worker

OPEN_PATIENCE_S = 10.0           # for a database that is started together with us
PATIENCE_S = 5.0                 # of callers who wait for a commit before they are told that there is none


class Store:
    """One database. `available` tells whether the last commit went through.

    `prepare(connection)` and `carry_out(connection, writes)` run on the writer's thread: after each connect, and inside
    each transaction. `came_too_late(write)` is called when a withdrawn write was committed all the same.
    """

    log = Logger()

    def __init__(self, url: URL, line: str, reactor: Any, prepare: Callable[[Connection], None],
                 carry_out: Callable[[Connection, Sequence[Write]], None],
                 came_too_late: Callable[[Write], None] = lambda write: None) -> None:
        self._url = url
        self._line = line
        self._reactor = reactor
        self._prepare_writer = prepare
        self._carry_out = carry_out
        self._lock = FileLock(url)
        self._patience = Patience(reactor, PATIENCE_S, self._overdue)
        self._writing = Work(reactor)
        self._writing.came_too_late = came_too_late
        self._writing.answered = self._answered
        self._reading = self._writing if shares_connection(url) else Work(reactor)
        self._threads: list[Deferred] = []
        self.available = False

    # --- life ---

    def open(self) -> Deferred:
        """Connect and migrate; fires when ready. Fails with ConfigError, or with HistoryUnavailable after 10 s."""
        return Deferred.fromCoroutine(self._open())

    async def _open(self) -> None:
        make_file(self._url)
        await self._take_lock()
        self._log_database()
        try:
            await self._start(self._writing, self._prepare_first)
            if self._reading is not self._writing:
                await self._start(self._reading, lambda connection: None)
        except IOPError:
            await self.close()
            raise
        self.available = True

    async def _take_lock(self) -> None:
        deadline = self._reactor.seconds() + OPEN_PATIENCE_S
        while True:
            try:
                return self._lock.take()
            except InUse:
                if self._writing.closing or self._reactor.seconds() > deadline:
                    raise ConfigError(f"The database {self._url.database} is in use by another process.",
                                      hint="End the edge or node that works there, or give this one a state folder of its "
                                      "own.") from None
            await deferLater(self._reactor, 0.1)

    def _prepare_first(self, connection: Connection) -> None:
        take_session_lock(connection)
        migrate(connection, self._line)
        self._prepare_writer(connection)

    def _start(self, work: Work, prepare: Callable[[Connection], None]) -> Deferred:
        """Begin a thread; fires when it is connected."""
        opened: Deferred = Deferred()
        ended: Deferred = Deferred()
        self._threads.append(ended)
        worker = Worker(work, make_engine(self._url), prepare, self._carry_out, self._tell_from_thread)
        from_thread = self._reactor.callFromThread

        def live() -> None:
            try:
                worker.open(OPEN_PATIENCE_S)
            except Exception as error:
                from_thread(opened.errback, error)
                work.abandon(HistoryUnavailable())
            else:
                from_thread(opened.callback, None)
                try:
                    worker.run()
                except Exception:
                    self.log.failure("the store's thread ended by a fault of its own")
                    from_thread(self._tell, False, "a fault of IOP")
                    work.abandon(HistoryUnavailable())
            from_thread(ended.callback, None)

        threading.Thread(target=live, name=f"iop-store-{self._line}", daemon=True).start()
        return opened

    def close(self) -> Deferred:
        """Commit what is queued, then let go of the database in the threads that use it."""
        self._patience.stop()
        self._writing.close()
        self._reading.close()
        return defer.DeferredList([_fork(ended) for ended in self._threads]).addCallback(self._ended)

    def _ended(self, _: object) -> None:
        self._writing.lending.stop()
        self._reading.lending.stop()
        self._lock.release()

    def _log_database(self) -> None:
        if self._url.get_backend_name() != "sqlite":
            self.log.info("{line}: PostgreSQL at {url}", line=self._line,
                          url=self._url.render_as_string(hide_password=True))
        else:
            how = ("this version can corrupt a WAL that several connections use, so there is one"
                   if self._reading is self._writing else "reads have a connection of their own")
            self.log.info("{line}: SQLite {version} at {path}: {how}", line=self._line, version=sqlite3.sqlite_version,
                          path=self._url.database, how=how)

    # --- health ---

    def backlog(self) -> int:
        return self._writing.backlog

    def _tell_from_thread(self, available: bool, reason: str) -> None:
        self._reactor.callFromThread(self._tell, available, reason)

    def _tell(self, available: bool, reason: str) -> None:
        if available:
            self.log.info("{line}: the database is back", line=self._line)
        else:
            self.log.error("{line}: {reason} {backlog} writes wait", line=self._line, reason=reason,
                           backlog=self._writing.backlog)
        self.available = available

    def _overdue(self) -> None:
        """The thread has not come back with an answer, good or bad: the database hangs."""
        if self.available:
            self.log.error("{line}: no answer from the database; {backlog} writes wait", line=self._line,
                           backlog=self._writing.backlog)
            self.available = False

    def _answered(self, committed: bool) -> None:
        self.available = self.available or committed

    # --- work ---

    def write(self, kind: str, values: Any, size: int = 0, wait_s: float = 0.0) -> Deferred:
        """Queue a write that waits for the database however long it takes, and up to `wait_s` for another to go with."""
        return self._put(Write(kind, values, size), wait_s)

    def write_soon(self, kind: str, values: Any, size: int = 0, *, withdraw: bool = False) -> Deferred:
        """Queue a write whose caller is told HistoryUnavailable after 5 s. It stays queued, or is withdrawn."""
        write = Write(kind, values, size)
        deferred = self._put(write)
        if write.deferred is not None and not self._writing.closing:
            self._patience.watch(write, withdraw=withdraw)
        return deferred

    def _put(self, write: Write, wait_s: float = 0.0) -> Deferred:
        try:
            return self._writing.put_write(write, wait_s)
        except IOPError as error:
            return defer.fail(error)

    def read(self, reading: Reading) -> Deferred:
        """Queue a read."""
        try:
            return self._reading.put_read(reading)
        except IOPError as error:
            return defer.fail(error)


def _fork(deferred: Deferred) -> Deferred:
    """A Deferred that fires when the other does, and leaves its result to others."""
    fork: Deferred = Deferred()

    def fire(result: Any) -> Any:
        fork.callback(None)
        return result

    deferred.addBoth(fire)
    return fork
