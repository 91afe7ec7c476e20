"""One request and its reply, under deadlines.

::

    asking --head--> reading --body ended--> ended
       |                |                      ^
       +----------------+-- deadline, abort ---+

The receiver is told `reply_started(status, headers)`, `bytes_received(data)` for each piece, `read_finished()` once per
read of the socket, and last, always and once, `reply_ended(error)`: None when the reply is whole. The receiver alone knows
whether a read said anything or only kept the connection alive, and calls `heard()` when it did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from iop.adapters.wire.connection import ClosedWhileKept, Connection, lost_before_answer, unhandled
from iop.errors import IOPError, UpstreamError
from iop.headers import Headers

Take = Callable[[], Connection | Deferred[Connection]]

log = Logger()


class Receiver(Protocol):
    """Who takes a reply."""

    def reply_started(self, status: int, headers: Headers) -> None: ...
    def bytes_received(self, data: bytes) -> None: ...
    def read_finished(self) -> None: ...
    def reply_ended(self, error: IOPError | None) -> None: ...


class _Nobody:
    """Takes the place of a receiver that has been told all."""

    def reply_started(self, status: int, headers: Headers) -> None: ...
    def bytes_received(self, data: bytes) -> None: ...
    def read_finished(self) -> None: ...
    def reply_ended(self, error: IOPError | None) -> None: ...


_NOBODY = _Nobody()


class TooSlow(UpstreamError):
    """The backend did not answer in time; it may be at it still."""


class Exchange:
    """See the module. From the request on, `first_byte_s` runs to the reply's head and `first_token_s` to the first
    `heard()`; `idle_s` runs between two of them.
    """

    def __init__(self, receiver: Receiver, clock: Any, *, first_byte_s: float, first_token_s: float, idle_s: float) -> None:
        self._receiver: Receiver = receiver
        self._clock = clock
        self._idle_s = idle_s
        self._connecting: Deferred[Connection] | None = None
        self._connection: Connection | None = None
        self._error: IOPError | None = None
        self._ended = False
        self._paused = False
        self._has_spoken = False
        self._first_token_s = max(first_byte_s, first_token_s)
        self._begun_s = clock.seconds()
        self._due_s = self._begun_s + first_byte_s
        self._limit = f"no answer within {first_byte_s:g} s (first_byte_s)"
        self._timer: IDelayedCall | None = clock.callLater(first_byte_s, self._too_late)

    def begin(self, take: Take, request: bytes, again: bool) -> None:
        """Send `request` on what `take` gives; once more where that was closed before anything of it was read."""
        self._take, self._request, self._again = take, request, again
        taken = take()
        if isinstance(taken, Deferred):
            self._connecting = taken
            taken.addCallbacks(self._connected, self._not_connected)
        else:
            self._connected(taken)

    def _connected(self, connection: Connection) -> None:
        self._connecting = None
        self._connection = connection
        if self._paused:
            connection.pause()
        connection.ask(self._request, self)

    def _not_connected(self, failure: Failure) -> None:
        self._connecting = None
        error = failure.value
        if isinstance(error, CancelledError):
            error = UpstreamError("The request was given up.", retryable=True)
        self._finish(error if isinstance(error, IOPError) else lost_before_answer(error))

    def abort(self, error: IOPError) -> None:
        """Close the connection at once, in every phase; the receiver's ending tells `error` unless it had ended."""
        if self._ended:
            return
        self._error = self._error or error
        self._stop_timer()
        if self._connection is not None:
            self._connection.abort(error)
        elif self._connecting is not None:
            self._connecting.cancel()

    def pause(self) -> None:
        self._paused = True
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        self._paused = False
        self._due_s = max(self._due_s, self._clock.seconds() + self._idle_s)
        if self._connection is not None:
            self._connection.resume()

    def heard(self) -> None:
        """The reply has said something."""
        self._due_s = self._clock.seconds() + self._idle_s
        if not self._has_spoken:
            self._has_spoken = True
            self._limit = f"nothing more within {self._idle_s:g} s (idle_s)"
            self._set_timer(self._idle_s)

    def linger(self, seconds: float) -> None:
        """The receiver has all it wants: wait only so long for the end of the body."""
        if not self._ended:
            self._idle_s = seconds
            self._due_s = self._clock.seconds() + seconds
            self._set_timer(seconds)

    # the reply, from the connection

    def head_received(self, status: int, headers: Headers) -> None:
        if not self._has_spoken:
            self._due_s = self._begun_s + self._first_token_s
            self._limit = f"nothing said within {self._first_token_s:g} s (first_token_s, else first_byte_s)"
        if self._error is None:
            self._receiver.reply_started(status, headers)

    def body_received(self, data: bytes) -> None:
        if self._error is None:
            self._receiver.bytes_received(data)

    def read_finished(self) -> None:
        if self._error is None:
            self._receiver.read_finished()

    def reply_ended(self, error: IOPError | None) -> None:
        if self._paused and self._connection is not None and error is None:
            self._connection.resume()            # it is another's from now on
        self._connection = None
        if isinstance(error, ClosedWhileKept) and self._again and self._error is None:
            self.begin(self._take, self._request, self._again)
        else:
            self._finish(error)

    def _finish(self, error: IOPError | None) -> None:
        if self._ended:
            return
        self._ended = True
        self._stop_timer()
        receiver, self._receiver = self._receiver, _NOBODY       # each knew the other
        try:
            receiver.reply_ended(self._error or error)
        except Exception:                        # it has not ended by this, and nobody else will tell it again
            log.failure("The end of a reply could not be handled.")
            receiver.reply_ended(unhandled())

    # deadlines

    def _set_timer(self, seconds: float) -> None:
        """A timer that comes too early sets itself again."""
        if self._error is not None:
            return
        if self._timer is not None and self._timer.active():
            if self._timer.getTime() <= self._clock.seconds() + seconds:
                return
            self._timer.cancel()
        self._timer = self._clock.callLater(seconds, self._too_late)

    def _stop_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def _too_late(self) -> None:
        """One timer for all that is heard: it looks when the last was, instead of being moved by each."""
        left = self._due_s - self._clock.seconds()
        if self._paused or left > 0:
            self._timer = self._clock.callLater(left if left > 0 else self._idle_s, self._too_late)
            return
        self.abort(TooSlow(f"The backend was too slow: {self._limit}.", retryable=True))
