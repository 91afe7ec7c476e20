"""One connection to a backend, which carries one request at a time and tells of its reply, read by read.

::

    free --ask--> asked --head--> replying --body whole--> free (or closed, where the backend does not keep it)
                    |                |
                    +----------------+--- anything that is no reply, a close, abort --> closed

Replies are read by llhttp (by way of httptools) within bounds: a head is metered before it is parsed, and what stands
between the pieces of a body counts too. It ends without a goodbye: a client that has what it wants must not wait for a
peer that may be dead (TLS close-notify).
"""

from __future__ import annotations

from typing import Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from OpenSSL import SSL
from twisted.internet import error as net
from twisted.internet.interfaces import ITCPTransport
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from iop.adapters.wire.heads import HeadMeter
from iop.errors import IOPError, UpstreamError
from iop.headers import Headers

BETWEEN_BYTES = 64 * 1024        # without a byte of the body: chunk extensions and trailers, which nobody reads

log = Logger()


class ClosedWhileKept(UpstreamError):
    """The backend closed a connection that was kept for the next request just when that came."""


class Asker(Protocol):
    """Who has sent the request that a connection carries."""

    def head_received(self, status: int, headers: Headers) -> None: ...
    def body_received(self, data: bytes) -> None: ...

    def read_finished(self) -> None:
        """Called after each read that told something of the body."""

    def reply_ended(self, error: IOPError | None) -> None:
        """Last, always and once: the connection is free again, or closed."""


class Home(Protocol):
    """Whose connections they are."""

    def freed(self, connection: Connection) -> None:
        """It can carry the next request."""

    def closed(self, connection: Connection) -> None: ...


class Connection(TwistedProtocol):  # type: ignore[misc]
    """See the module."""

    def __init__(self, home: Home, key: tuple[str, str, int]) -> None:
        self.key = key                           # scheme, host, port
        self.free_since = 0.0
        self._home = home
        self._asker: Asker | None = None
        self._parser = HttpResponseParser(self)
        self._kept = False                       # it has carried a reply before
        self._fault: IOPError | None = None      # why we ended it ourselves
        self._open = True
        self._begin()

    def _begin(self) -> None:
        self._meter: HeadMeter | None = HeadMeter()
        self._headers = Headers()
        self._status = 0
        self._told = False                       # the asker knows of the head
        self._pieces: list[bytes] = []
        self._between = 0
        self._keep = self._whole = self._to_the_close = False

    def connectionMade(self) -> None:
        if ITCPTransport.providedBy(self.transport):
            self.transport.setTcpNoDelay(True)   # the last small packet of a long prompt would wait for an ACK

    def ask(self, request: bytes, asker: Asker) -> None:
        """Send a request; only while free."""
        self._begin()
        self._asker = asker
        self.transport.write(request)

    def abort(self, error: IOPError) -> None:
        """Close it at once; the asker is told `error` when it is closed."""
        self._fault = self._fault or error
        if self._open:
            self.transport.abortConnection()

    def pause(self) -> None:
        self.transport.pauseProducing()

    def resume(self) -> None:
        self.transport.resumeProducing()

    # --- from the transport

    def dataReceived(self, data: bytes) -> None:
        if self._fault is not None:
            return
        try:
            self._read(data)
        except UpstreamError as error:
            self.abort(error)
        except HttpParserUpgrade:
            self.abort(UpstreamError("The backend's answer is not HTTP: it goes on in another protocol.",
                                     retryable=not self._told))
        except HttpParserError as error:
            self.abort(UpstreamError(f"The backend's answer is not HTTP: {str(error)[:200]}", retryable=not self._told))
        except Exception:
            log.failure("A reply could not be handled.")
            self.abort(unhandled())

    def _read(self, data: bytes) -> None:
        if self._asker is None:
            raise UpstreamError("The backend sent something that nobody has asked for.")
        if self._meter is not None:
            self._meter.feed(data)
        self._between += len(data)
        self._parser.feed_data(data)
        self._tell(self._asker)

    def _tell(self, asker: Asker) -> None:
        """What this read has brought."""
        if self._status and not self._told:
            codings = self._headers.getRawHeaders(b"transfer-encoding")
            if codings and [coding.lower() for coding in codings] != [b"chunked"]:
                raise UpstreamError("The backend's answer is not HTTP: its transfer coding is not `chunked`.", retryable=True)
            self._told = True
            asker.head_received(self._status, self._headers)
        if self._pieces:
            data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces, self._between = [], 0
            asker.body_received(data)
        elif self._told and self._between > BETWEEN_BYTES:
            raise UpstreamError("The backend sent too much between the pieces of its reply.")
        if self._whole and self._fault is None:
            self._free(asker)
        else:
            asker.read_finished()

    def _free(self, asker: Asker) -> None:
        self._asker = None
        if self._keep:
            self._kept = True
            self._home.freed(self)
        else:
            self._open = False
            self.transport.abortConnection()
        asker.reply_ended(None)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._open = False
        self._home.closed(self)
        asker, self._asker = self._asker, None
        if asker is not None:
            asker.reply_ended(self._fault or self._lost(reason))

    def _lost(self, reason: Failure) -> IOPError | None:
        if self._told:                           # without a length the close is the end; proof is elsewhere
            return None if self._to_the_close and reason.check(net.ConnectionDone) else UpstreamError(
                "The backend's reply broke off before its end.", retryable=True)
        if self._kept and self._meter is not None and self._meter.untouched and not reason.check(SSL.Error):
            return ClosedWhileKept(retryable=True)
        return lost_before_answer(reason.value)

    # --- from the parser

    def on_message_begin(self) -> None:
        if self._whole:                          # nothing more was asked: whatever this is, it is not read
            self._keep = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._status:                     # else it is a trailer
            self._headers.add(name, value)

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._whole or 100 <= status < 200:
            self._headers = Headers()
            return
        self._status, self._meter = status, None
        self._between = 0
        self._keep = self._parser.should_keep_alive()
        self._to_the_close = not (self._headers.hasHeader(b"content-length") or
                                  self._headers.hasHeader(b"transfer-encoding"))

    def on_body(self, data: bytes) -> None:
        if not self._whole:
            self._pieces.append(data)

    def on_message_complete(self) -> None:
        self._whole = self._whole or self._status != 0


def unhandled() -> IOPError:
    """A fault of ours."""
    return IOPError("The reply could not be handled; the node's log has the details.")


def lost_before_answer(value: BaseException) -> UpstreamError:
    """Why there was no answer. Nothing of a reply had been taken, so trying again is safe."""
    if isinstance(value, net.DNSLookupError):
        sentence = "The backend's name cannot be resolved."
    elif isinstance(value, net.TimeoutError):
        sentence = "The backend did not take the connection in time (connect_s)."
    elif isinstance(value, (net.ConnectionDone, net.ConnectionLost, net.ConnectionAborted)):
        sentence = "The backend closed the connection before it answered."
    elif isinstance(value, net.ConnectError):
        sentence = f"The backend cannot be reached: {value}"
    elif isinstance(value, SSL.Error):
        sentence = f"The TLS connection to the backend was not accepted: {str(value)[:200]}"
    else:
        sentence = f"The backend gave no answer: {type(value).__name__}: {str(value)[:200]}"
    return UpstreamError(sentence, retryable=True)
