"""What all executions share: one ending, nothing emitted while paused, and how an ending is told."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from iop.errors import IOPError
from iop.events import kind_of, now_us, outcome_of
from iop.interfaces import IExecution
from iop.proto.run_pb2 import Outcome, RuntimeEvent, Truncated

STOP_S = 30.0        # to let go of a backend takes milliseconds


@implementer(IExecution)
class Execution:
    """The base of every adapter's execution.

    Subclasses call `_emit` and, once, `_end` or `_end_with`; they implement `_stop`, `_pause` and `_resume`.
    What arrives although the source was paused (TLS may hold decrypted bytes) waits here, and so does the ending behind it.
    """

    stop_s = STOP_S

    def __init__(self, sink: Any) -> None:
        self.finished: Deferred[tuple[str, Outcome]] = Deferred()
        self._sink = sink
        self._stopped: IOPError | None = None      # why somebody asked for the end
        self._paused = False
        self._held: list[RuntimeEvent] = []
        self._held_mark = b""
        self._dropped: dict[int, int] = {}         # bytes that came after a stop while held back, by channel
        self._ending: tuple[str, Outcome] | None = None
        self._told = False

    def stop(self, error: IOPError) -> None:
        if self._stopped is not None or self._told:
            return
        self._stopped = error
        if self._ending is None:
            self._stop(error)
        else:                                      # it waits behind a pause: for the run it has not ended yet
            self._ending = None
            self._end_with(error)

    def pauseProducing(self) -> None:
        self._paused = True
        self._pause()

    def resumeProducing(self) -> None:
        if not self._paused:
            return
        self._paused = False
        if self._held:
            held, self._held = self._held, []
            mark, self._held_mark = self._held_mark, b""
            self._sink.emit(held, mark)
            if self._paused:
                return
        if self._ending is None:
            self._resume()
        else:
            self._tell()

    def _emit(self, events: list[RuntimeEvent], mark: bytes = b"") -> None:
        if self._stopped is not None and (self._paused or self._dropped):
            self._drop(events)
        elif self._paused:
            self._held += events
            self._held_mark = mark
        elif events:
            self._sink.emit(events, mark)

    def _drop(self, events: list[RuntimeEvent]) -> None:
        """What a stopped backend still says would grow here without bound. From the first drop on all of it goes: a text
        whose middle is missing would look whole. The ending tells how much it was."""
        for event in events:
            if event.WhichOneof("kind") == "output":
                size = len(event.exact) or len(event.output.encode("utf-8", "surrogatepass"))
                self._dropped[event.channel] = self._dropped.get(event.channel, 0) + size

    def _end(self, kind: str, outcome: Outcome) -> None:
        """The first ending counts; it waits for what a pause holds back, unless it is a stop, which drops that."""
        if self._ending is not None:
            return
        self._ending = (kind, outcome)
        if self._stopped is not None:
            self._drop(self._held)
            self._held = []
        if self._dropped:
            self._sink.emit([RuntimeEvent(at_us=now_us(), truncated=Truncated(channel=channel, dropped_bytes=size))
                             for channel, size in sorted(self._dropped.items())])
        if not self._held:
            self._tell()

    def _tell(self) -> None:
        if not self._told and self._ending is not None:
            self._told = True
            self.finished.callback(self._ending)

    def _end_with(self, error: IOPError) -> None:
        """End because of `error`, or of what stop() was given before."""
        error = self._stopped or error
        self._end(kind_of(error), outcome_of(error))

    def _stop(self, error: IOPError) -> None:
        raise NotImplementedError

    def _pause(self) -> None:
        raise NotImplementedError

    def _resume(self) -> None:
        raise NotImplementedError


class _Refused(Execution):
    """A run that ended before anything was started."""

    def _stop(self, error: IOPError) -> None:
        """Nothing runs."""

    def _pause(self) -> None:
        """Nothing runs."""

    _resume = _pause


def refused(sink: Any, error: IOPError) -> Execution:
    """An execution that has ended already because of `error`."""
    execution = _Refused(sink)
    execution._end_with(error)
    return execution
