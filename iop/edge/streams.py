"""What goes on after a command has answered: a run's events, the edge's life. Readers that pull at their own pace."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from iop.errors import IOPError
from iop.events import ENDING_KINDS, batch_dicts, life_dict
from iop.interfaces import IEdgeService, IRunCursor, IStream
from iop.proto import run_pb2
from iop.rendering import ANSWER_CHANNELS, event_note, life_line
from iop.runs import EventId

log = Logger()
Item = dict[str, Any]
TAKE_BYTES = 65536   # one read of a run's log
TAKE_EVENTS = 500    # one read of the lifecycle events


class ToldError(IOPError):
    """A run or a node told this: its own code and sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code  # theirs


class _Stream:
    """What all streams share: one read under way at most, none while paused, one ending.

    `read()` reads once and writes what there was; it fires with whether there may be more at once.
    """

    note = ""

    def __init__(self, read: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        self._read_once = read
        self._write: Callable[[list[Item]], object] = lambda items: None
        self._done: Callable[[IOPError | None], object] = lambda error: None
        self._running = self._woken = self._paused = self._ended = False

    def start(self, write: Callable[[list[Item]], object], done: Callable[[IOPError | None], object]) -> None:
        self._write, self._done = write, done
        self._wake()

    def stop(self) -> None:
        self._end(None)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._wake()

    def _release(self) -> None:
        """Let go of what feeds the stream."""

    def _wake(self) -> None:
        self._woken = True
        if not (self._running or self._paused or self._ended):
            self._running = True
            Deferred.fromCoroutine(self._pump()).addErrback(self._failed)

    async def _pump(self) -> None:
        try:
            while not (self._paused or self._ended):
                self._woken = False
                if not (await self._read_once() or self._woken):
                    return
        finally:
            self._running = False

    def _failed(self, failure: Failure) -> None:
        error = failure.value
        if not isinstance(error, IOPError):
            log.failure("a stream of a command failed", failure=failure)
            error = IOPError()
        self._end(error)

    def _end(self, error: IOPError | None) -> None:
        if not self._ended:
            self._ended = True
            self._release()
            self._done(error)


@implementer(IStream)
class RunStream(_Stream):
    """The events of one run behind `after`, until it has ended.

    With `owner`, the stream is the run's own: stopping it cancels the run, and it ends with an error when the run does not
    complete. Without, it only looks on.
    """

    def __init__(self, edge: IEdgeService, run_id: str, after: EventId, owner: run_pb2.Source | None = None,
                 note: str = "") -> None:
        super().__init__(self._read)
        self.note = note
        self._edge, self._run_id, self._after, self._owner = edge, run_id, after, owner
        self._cursor: IRunCursor | None = None
        self._mid_line = False

    def stop(self) -> None:
        if self._owner is not None and not self._ended:
            self._edge.cancel(self._run_id, self._owner, "the console's user stopped it").addErrback(
                lambda failure: log.failure("run {run_id} could not be cancelled", failure=failure, run_id=self._run_id))
        super().stop()

    async def _read(self) -> bool:
        if self._cursor is None:
            cursor = await self._edge.cursor(self._run_id, self._after)
            if self._ended:
                cursor.close()
                return False
            self._cursor = cursor
            cursor.notify(self._wake)
        entries = await maybeDeferred(self._cursor.take, TAKE_BYTES)
        if self._ended:
            return False
        if entries:
            self._write([item for entry in entries for item in batch_dicts(entry.batch)])
        if self._cursor is not None and self._cursor.ended:
            await self._told_all()
            return False
        return bool(entries)

    async def _told_all(self) -> None:
        error = None
        if self._owner is not None:
            record = await self._edge.run(self._run_id)
            outcome = run_pb2.Outcome.FromString(record.outcome)
            if record.state != "completed":
                error = ToldError(outcome.code or record.state, outcome.message or f"The run ended as {record.state}.")
        self._end(error)

    def _release(self) -> None:
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None

    def text(self, item: Item) -> tuple[str, str]:
        if item["type"] == "output":
            if item["text"]:
                self._mid_line = not item["text"].endswith("\n")
            return ("out" if item["channel"] in ANSWER_CHANNELS else "err"), item["text"]
        notice = _notice(item)
        if not notice:
            return "err", ""
        start, self._mid_line = "\n" if self._mid_line else "", False
        return "err", f"{start}[{notice}]\n"


@implementer(IStream)
class LifeStream(_Stream):
    """Lifecycle events behind an event id (None: the latest `limit`), and with `follow` those that come."""

    def __init__(self, edge: IEdgeService, after: int | None, limit: int, follow: bool) -> None:
        super().__init__(self._read)
        self._edge, self._after, self._limit, self._follow = edge, after, limit, follow
        self._unwatch: Callable[[], object] = lambda: None

    def start(self, write: Callable[[list[Item]], object], done: Callable[[IOPError | None], object]) -> None:
        if self._follow:
            # What comes is read from the history again, so that a reader who lags neither misses nor holds anything.
            self._unwatch = self._edge.watch(lambda event: self._wake())
        super().start(write, done)

    async def _read(self) -> bool:
        limit = self._limit if self._after is None else TAKE_EVENTS
        found = await self._edge.events(self._after, limit)
        if self._ended:
            return False
        if found:
            self._after = found[-1].event_id
            self._write([life_dict(event) for event in found])
        elif self._after is None:
            self._after = 0
        more = len(found) == limit
        if not self._follow and not more:
            self._end(None)
        return more

    def _release(self) -> None:
        self._unwatch()

    def text(self, item: Item) -> tuple[str, str]:
        return "out", life_line(item) + "\n"


def _notice(item: Item) -> str:
    kind = item["type"]
    if kind == "started":
        return f"started {item['adapter']}/{item['target']}"
    if kind in ENDING_KINDS:
        facts = [item["message"] or ("" if item["code"] in ("ok", kind) else item["code"])]
        facts += [f"{name.replace('_', ' ')} {item[name]}" for name in ("exit_code", "signal") if item[name]]
        return ": ".join(filter(None, [kind, ", ".join(filter(None, facts))]))
    return event_note(item)
