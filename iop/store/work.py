"""What a store's thread is given to do, and how it is handed over: writes that wait for a commit, reads in slices."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from sqlalchemy import Connection
from twisted.internet.defer import Deferred

from iop.errors import HistoryUnavailable
from iop.store.lending import Lending

# A read yields between two of its pages and returns what it found; it holds nothing of the database while it waits.
Pages = Generator[None, None, Any]
Reading = Callable[[Connection], Pages]


class Write:
    """One thing to commit. `kind` says which method of a transaction knows how; `values` belong to the kind.

    `result`, `error` and `committed` are set by the thread, and read by the reactor when it is done only. `withdrawn` is
    set by the reactor: the caller was told no, so the thread leaves it out if it still can. `urgent`: it is not to wait
    for another to go with.
    """

    __slots__ = ("kind", "values", "size", "deferred", "result", "error", "committed", "withdrawn", "done", "urgent")

    def __init__(self, kind: str, values: Any, size: int = 0) -> None:
        self.kind = kind
        self.values = values
        self.size = size             # bytes it holds until the commit, roughly
        self.deferred: Deferred | None = Deferred()
        self.result: Any = None
        self.error: Exception | None = None
        self.committed = False
        self.withdrawn = False
        self.done = False
        self.urgent = True


class Read:
    """One question; started anew when its connection was lost."""

    __slots__ = ("reading", "deferred", "running", "result", "error", "tries")

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.deferred: Deferred = Deferred()
        self.running: Pages | None = None
        self.result: Any = None
        self.error: Exception | None = None
        self.tries = 0


class Work:
    """The queue between the reactor thread, which puts in and is answered, and one thread that takes out."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self.writes: deque[Write] = deque()
        self.reads: deque[Read] = deque()
        self.closing = False         # take no more; the thread ends once all is done
        self.backlog = 0             # writes that were put in and not answered
        self.came_too_late: Callable[[Write], None] = lambda write: None     # withdrawn, but committed all the same
        self.answered: Callable[[bool], None] = lambda committed: None       # after each group of writes
        self.lending = Lending(reactor, lambda: bool(self.backlog or self._questions))
        self._questions = 0          # reads that were put in and not answered
        self._wakeups: SimpleQueue[None] = SimpleQueue()
        self._awake = False
        self._waiting: Any = None    # the call that wakes the thread for what can wait

    # --- on the reactor thread ---

    def put_write(self, write: Write, wait_s: float = 0.0) -> Deferred:
        """Queue it; fires after the commit with its result. Raises HistoryUnavailable once closing.

        With `wait_s` it goes with the next one that does not wait, or after so long.
        """
        self._check_open()
        deferred = write.deferred
        self.backlog += 1
        self.writes.append(write)
        write.urgent = not wait_s
        if write.urgent:
            self._wake()
        elif self._waiting is None and not self._awake:
            self._waiting = self._reactor.callLater(wait_s, self._waited)
        return deferred

    def _waited(self) -> None:
        self._waiting = None
        self._wake()

    def put_read(self, reading: Reading) -> Deferred:
        """Queue it; fires with what it returns. Raises HistoryUnavailable once closing."""
        self._check_open()
        read = Read(reading)
        self._questions += 1
        self.reads.append(read)
        self._wake()
        return read.deferred

    def close(self) -> None:
        self.closing = True
        self._wake()

    def _check_open(self) -> None:
        if self.closing:
            raise HistoryUnavailable("The history is closed.")

    def _wake(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        if not self._awake:
            self._awake = True
            self._wakeups.put(None)
            self.lending.work_came()

    def _finish_writes(self, writes: Sequence[Write]) -> None:
        self.backlog -= len(writes)
        self.answered(writes[0].committed)
        for write in writes:
            write.done = True
            deferred, write.deferred = write.deferred, None
            if deferred is None:     # the caller was told no before: its patience had ended
                if write.withdrawn and write.committed:
                    self.came_too_late(write)
            elif write.error is not None:
                deferred.errback(write.error)
            else:
                deferred.callback(write.result)
            write.values = None      # whoever still holds the write does not hold a request of many megabytes

    def _finish_read(self, read: Read) -> None:
        self._questions -= 1
        if read.error is not None:
            read.deferred.errback(read.error)
        else:
            read.deferred.callback(read.result)

    # --- on the other thread ---

    def begin_turn(self) -> None:
        """Whatever is put in from now on wakes the thread again."""
        self._awake = False
        self.lending.moved()

    def rest(self, timeout_s: float | None) -> None:
        """Until something is put in."""
        self.lending.give_back()
        try:
            self._wakeups.get(timeout=timeout_s)
        except Empty:
            pass

    def take_writes(self, count: int, size: int) -> list[Write]:
        """In order, at most `count`, stopping once `size` bytes are passed."""
        taken: list[Write] = []
        while self.writes and len(taken) < count and size > 0:
            write = self.writes.popleft()
            size -= write.size
            taken.append(write)
        return taken

    def finish(self, writes: Sequence[Write], *, committed: bool = False) -> None:
        """Have all Deferreds of one commit fired, in one call of the reactor."""
        for write in writes:
            write.committed = committed
        if writes:
            self._reactor.callFromThread(self._finish_writes, writes)

    def answer(self, read: Read) -> None:
        self._reactor.callFromThread(self._finish_read, read)

    def abandon(self, error: Exception) -> None:
        """Nothing will be done any more: say so to everyone who waits."""
        self.closing = True
        left = self.take_writes(len(self.writes), 1 << 62)
        for write in left:
            write.error = error
        self.finish(left)
        while self.reads:
            read = self.reads.popleft()
            read.error = error
            self.answer(read)
