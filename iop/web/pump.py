"""Pumping a stream to one reader.

::

    source.notify -> pump -> source.take(limit) -> one write -> (transport full: paused) -> resumed -> pump ...

The reader pulls: nothing is kept here for one who does not read. A reader that takes nothing for 10 minutes is closed.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from iop.errors import IOPError
from iop.web.responses import StreamSource

log = Logger()

TAKE_BYTES = 256 * 1024      # with the transport's own 64 KiB, and a formatting that doubles it: under 1 MiB a reader
HEARTBEAT_S = 15.0
STALLED_S = 600.0


@implementer(IPushProducer)
class Pump:
    """Moves what a source has to one transport, at the transport's pace."""

    def __init__(self, source: StreamSource, write: Callable[[bytes], object], done: Callable[[bool], object],
                 now: Callable[[], float]) -> None:
        """`write` takes the bytes of one turn; `done(whole)` is called once: whole is False when it broke off."""
        self._source = source
        self._write = write
        self._done = done
        self._now = now
        self._paused_at: float | None = None
        self._written_at = now()
        self._waiting: Deferred[list[bytes]] | None = None
        self._pumping = False
        self._closed = False

    def start(self) -> None:
        self._source.notify(self.pump)
        self.pump()

    def pump(self) -> None:
        """Take and write until there is nothing, or the transport is full."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while not self._closed and self._paused_at is None and self._waiting is None and self._pump_once():
                pass
        finally:
            self._pumping = False

    def _pump_once(self) -> bool:
        """Whether there may be more now."""
        taken = self._source.take(TAKE_BYTES)
        if isinstance(taken, list):
            return self._wrote(taken)
        self._waiting = taken
        taken.addCallbacks(self._caught_up, self._broken)
        taken.addErrback(self._broken)
        return self._waiting is None

    def _wrote(self, pieces: list[bytes]) -> bool:
        if self._closed:
            return False
        data = b"".join(pieces)
        if data:                 # an empty write would be the end of a chunked body
            self._written_at = self._now()
            self._write(data)
        if self._source.ended:
            self._finish(True)
            return False
        return bool(pieces)

    def _caught_up(self, pieces: list[bytes]) -> None:
        self._waiting = None
        if self._wrote(pieces):
            self.pump()

    def _broken(self, failure: Failure) -> None:
        self._waiting = None
        if self._closed:
            return
        if failure.check(IOPError):          # its source cannot tell it in the stream
            log.info("a stream to a reader is broken off: {trouble}", trouble=failure.getErrorMessage())
        else:
            log.failure("a stream to a reader broke", failure=failure)
        self._finish(False)

    def _finish(self, whole: bool) -> None:
        self._closed = True
        self._source.close()
        self._done(whole)

    def stop(self) -> None:
        """The client is gone: close the source."""
        if self._closed:
            return
        self._closed = True
        if self._waiting is not None:
            self._waiting.cancel()
        self._source.close()

    def tick(self, now: float) -> None:
        """Once a second or so: heartbeat, and the end of a reader that takes nothing."""
        if self._closed:
            return
        if self._paused_at is not None:
            if now - self._paused_at >= STALLED_S:
                self._finish(False)
        elif self._source.heartbeat and now - self._written_at >= HEARTBEAT_S:
            self._written_at = now
            self._write(self._source.heartbeat)

    # --- IPushProducer

    def pauseProducing(self) -> None:
        if self._paused_at is None:
            self._paused_at = self._now()

    def resumeProducing(self) -> None:
        self._paused_at = None
        self.pump()

    def stopProducing(self) -> None:
        self.stop()
