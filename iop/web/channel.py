"""One HTTP connection: its requests one after the other, its limits.

::

    IDLE --first byte--> HEAD --empty line--> BODY --whole--> HANDLING --answered--> IDLE ...
                           |                    |                 |
                           +--- refused --------+                 +-- last answer --> CLOSING
                                   v
                               DISCARDING (the answer is out, the rest is read and dropped, 2 s at most)

Each phase has a deadline for the whole of it, kept by the site's sweep: an idle timer alone can be fed for ever.
A refusal is decided on the head, so that nobody without a key makes us take a body.
Only this module and exchange.py know twisted.web.
"""

from __future__ import annotations

from twisted.python.failure import Failure
from twisted.web import http

from iop.errors import InvalidRequest, IOPError
from iop.web.errors import HeadersTooLarge, RequestTimeout, error_response
from iop.web.exchange import REASONS, HttpRequest, ISiteOfRequest
from iop.web.sse import STALLED_S

IDLE_S, HEAD_S, BODY_S, DISCARD_S, CLOSE_S = 75.0, 10.0, 30.0, 2.0, 60.0
HEADERS, HEADER_BYTES, HEAD_BYTES = 100, 8192, 65536


class Channel(http.HTTPChannel):
    """One connection."""

    maxHeaders = HEADERS
    totalHeadersSize = HEAD_BYTES
    MAX_LENGTH = HEADER_BYTES
    timeOut = None
    requestFactory = HttpRequest
    site: ISiteOfRequest
    _full_since: float | None = None     # since when the transport takes no more

    def connectionMade(self) -> None:
        super().connectionMade()
        self._enter("IDLE", HEAD_S)
        self.site.channels.add(self)

    def connectionLost(self, reason: Failure) -> None:
        try:
            super().connectionLost(reason)
        finally:
            self.site.left(self)

    def _enter(self, phase: str, deadline_s: float | None) -> None:
        self.phase = phase
        self.deadline = None if deadline_s is None else self.site.now() + deadline_s

    # --- parsing, within limits

    def dataReceived(self, data: bytes) -> None:
        if self.phase == "DISCARDING":
            return
        if self.phase == "IDLE":
            self._enter("HEAD", HEAD_S)
        super().dataReceived(data)

    def lineReceived(self, line: bytes) -> None:
        if self.phase == "DISCARDING":
            return
        if line[:1] in (b" ", b"\t"):  # a folded header: obsolete, and read differently by different parsers
            self._respondToBadRequestAndDisconnect()
            return
        super().lineReceived(line)

    def lineLengthExceeded(self, line: bytes) -> None:
        self._reply_raw(HeadersTooLarge(f"A header may have {HEADER_BYTES} bytes."))

    def rawDataReceived(self, data: bytes) -> None:
        if self.phase != "DISCARDING":
            super().rawDataReceived(data)

    def allHeadersReceived(self) -> None:
        if self.phase == "DISCARDING":
            return
        self._enter("BODY", BODY_S)
        request = self.requests[-1]
        self.persistent = self.checkPersistence(request, self._version)
        request.head_received(self._command, self._path, self._version, self.length)
        if request.refusal is not None and (self.length != 0 or request.requestHeaders.hasHeader(b"transfer-encoding")):
            self.refuse(request, request.refusal)
        elif self._version == b"HTTP/1.1" and request.getHeader(b"expect") is not None and self.length != 0:
            self._send100Continue()

    def allContentReceived(self) -> None:
        if self.phase == "DISCARDING":
            return
        self._enter("HANDLING", None)
        super().allContentReceived()

    # --- ends

    def refuse(self, request: HttpRequest, error: IOPError) -> None:
        """Answer now, though the body is still to come; what comes of it is dropped."""
        request.refusal = error
        self.persistent = False
        self._enter("DISCARDING", DISCARD_S)
        request.answer_error(error)

    def requestDone(self, request: HttpRequest) -> None:
        if self.phase == "DISCARDING":
            self.requests.remove(request)
            self._linger()
            return
        if self.persistent:
            self._enter("IDLE", IDLE_S)
        else:        # a client that still reads a long answer has longer to take it
            self._enter("CLOSING", CLOSE_S if self._full_since is None else STALLED_S)
        super().requestDone(request)

    def pauseProducing(self) -> None:
        self._full_since = self.site.now()
        super().pauseProducing()

    def resumeProducing(self) -> None:
        self._full_since = None
        super().resumeProducing()

    def _respondToBadRequestAndDisconnect(self) -> None:
        self._reply_raw(InvalidRequest("The head of the request is malformed or too large."), 400)

    def _reply_raw(self, error: IOPError, status: int = 431) -> None:
        """An answer to what never became a request."""
        if self.phase == "DISCARDING":
            return
        self._enter("DISCARDING", DISCARD_S)
        self.persistent = False
        body = error_response(error, "management").body
        self.write(b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
                   % (status, REASONS[status], len(body), body))
        self._linger()

    def _linger(self) -> None:
        """Close our side and go on reading for a moment: a close with unread bytes would take the answer away (RST)."""
        self._networkProducer.unregisterProducer()
        if self.isSecure():
            self.transport.loseConnection()
        else:
            self.transport.loseWriteConnection()

    def swept(self, now: float) -> None:
        """Once a second: end what is overdue."""
        if self.phase == "HANDLING":
            for request in list(self.requests):
                request.tick(now)
        elif self.deadline is not None and now >= self.deadline and not self._still_reads(now):
            self._overdue()

    def _still_reads(self, now: float) -> bool:
        """An idle connection whose last answer is not taken yet is not idle."""
        return self.phase == "IDLE" and self._full_since is not None and now - self._full_since < STALLED_S

    def _overdue(self) -> None:
        if self.phase == "BODY" and self.requests:
            self.refuse(self.requests[-1], RequestTimeout())
        elif self.phase == "HEAD":
            self._reply_raw(RequestTimeout(), 408)
        elif self.phase == "IDLE":
            self._enter("CLOSING", CLOSE_S)
            self.loseConnection()
        else:
            self.transport.abortConnection()
