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

from typing import Any, Protocol

from OpenSSL import SSL
from twisted.internet import error as net
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Protocol as BodyProtocol
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers

from iop.adapters.wire.connection import Connection, Reading
from iop.errors import IOPError, UpstreamError

log = Logger()


class Receiver(Protocol):
    """Who takes a reply."""

    def reply_started(self, status: int, headers: Headers) -> None: ...
    def bytes_received(self, data: bytes) -> None: ...
    def read_finished(self) -> None: ...
    def reply_ended(self, error: IOPError | None) -> None: ...


class Exchange(BodyProtocol):  # type: ignore[misc]
    """See the module. From the request on, `first_byte_s` runs to the reply's head and `first_token_s` to the first
    `heard()`; `idle_s` runs between two of them.
    """

    def __init__(self, receiver: Receiver, clock: Any, reading: Reading, *, first_byte_s: float, first_token_s: float,
                 idle_s: float) -> None:
        self._receiver = receiver
        self._clock = clock
        self._reading = reading
        self._idle_s = idle_s
        self._asked: Deferred[Any] | None = None
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

    def begin(self, asked: Deferred[Any]) -> None:
        """`asked` fires with Twisted's response."""
        self._asked = asked
        asked.addCallbacks(self._answered, self._not_answered)
        asked.addErrback(self._fault)

    def abort(self, error: IOPError) -> None:
        """Close the connection at once, in every phase; the receiver's ending tells `error` unless it had ended."""
        if self._ended:
            return
        self._error = self._error or error
        if self.transport is not None:
            self.transport.loseConnection()
        elif self._asked is not None:
            self._asked.cancel()

    def pause(self) -> None:
        self._paused = True
        if self.transport is not None:
            self.transport.pauseProducing()

    def resume(self) -> None:
        self._paused = False
        self._due_s = max(self._due_s, self._clock.seconds() + self._idle_s)
        if self.transport is not None:
            self.transport.resumeProducing()

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

    # the reply

    def _answered(self, response: Any) -> None:
        self._connection = self._reading.connection
        if self._connection is not None:
            self._connection.read_finished = self._read_finished
        if not self._has_spoken:
            self._due_s = self._begun_s + self._first_token_s
            self._limit = f"nothing said within {self._first_token_s:g} s (first_token_s, else first_byte_s)"
        if self._error is None:
            self._receiver.reply_started(response.code, response.headers)
        response.deliverBody(self)
        if self._error is not None:          # aborted in this very turn
            self.transport.loseConnection()
        elif self._paused:
            self.transport.pauseProducing()

    def dataReceived(self, data: bytes) -> None:
        if self._error is not None:
            return
        self._receiver.bytes_received(data)
        if self._connection is None:
            self._read_finished()

    def _read_finished(self) -> None:
        if self._error is None and not self._ended:
            self._receiver.read_finished()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if reason.check(ResponseDone, PotentialDataLoss):   # without a length the close is the end; proof is elsewhere
            self._finish(None)
        else:
            self._finish(_own_error(reason) or UpstreamError("The backend's reply broke off before its end.",
                                                            retryable=True))

    def _not_answered(self, failure: Failure) -> None:
        self._finish(_translated(failure))

    def _fault(self, failure: Failure) -> None:
        """A fault in the receiver: the reply cannot be used, and it must not be silent."""
        log.failure("A reply could not be handled.", failure)
        self._error = self._error or IOPError("The reply could not be handled; the node's log has the details.")
        if self.transport is not None:
            self.transport.loseConnection()
        self._finish(self._error)

    def _finish(self, error: IOPError | None) -> None:
        if self._ended:
            return
        self._ended = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.read_finished = None
        self._receiver.reply_ended(self._error or error)

    # deadlines

    def _set_timer(self, seconds: float) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = self._clock.callLater(seconds, self._too_late)

    def _too_late(self) -> None:
        """One timer for all that is heard: it looks when the last was, instead of being moved by each."""
        left = self._due_s - self._clock.seconds()
        if self._paused or left > 0:
            self._timer = self._clock.callLater(left if left > 0 else self._idle_s, self._too_late)
            return
        self.abort(UpstreamError(f"The backend was too slow: {self._limit}.", retryable=True))


def reasons(failure: Failure) -> list[BaseException]:
    """The failure's exception and those that Twisted packed into it."""
    inner = getattr(failure.value, "reasons", ())
    return [failure.value, *(reason.value if isinstance(reason, Failure) else reason for reason in inner)]


def _own_error(failure: Failure) -> IOPError | None:
    return next((value for value in reasons(failure) if isinstance(value, IOPError)), None)


def _translated(failure: Failure) -> IOPError:
    """A failed request as an IOPError. Nothing of the reply had been taken, so trying again is safe."""
    own = _own_error(failure)
    if own is not None:
        return own
    value = reasons(failure)[-1]
    if isinstance(value, CancelledError):
        sentence = "The request was given up."
    elif isinstance(value, net.DNSLookupError):
        sentence = "The backend's name cannot be resolved."
    elif isinstance(value, net.TimeoutError):
        sentence = "The backend did not take the connection in time (connect_s)."
    elif isinstance(value, net.ConnectError):
        sentence = f"The backend cannot be reached: {value}"
    elif isinstance(value, (net.ConnectionDone, net.ConnectionLost, net.ConnectionAborted)):
        sentence = "The backend closed the connection before it answered."
    elif isinstance(value, SSL.Error):
        sentence = f"The TLS connection to the backend was not accepted: {str(value)[:200]}"
    else:
        sentence = f"The backend's answer is not HTTP: {type(value).__name__}: {str(value)[:200]}"
    return UpstreamError(sentence, retryable=True)
