"""One HTTP connection: its requests one after the other, its limits.

::

    IDLE --first byte--> HEAD --empty line--> BODY --whole--> HANDLING --answered--> IDLE ...
                           |                    |                 |
                           +--- refused --------+                 +-- last answer --> CLOSING
                                   v
                               DISCARDING (the answer is out, the rest is read and dropped, 2 s at most)

Each phase has a deadline for the whole of it, kept by the site's sweep: an idle timer alone can be fed for ever.
A refusal is decided on the head, so that nobody without a key makes us take a body.
The messages are read by llhttp (Node.js's parser, by way of httptools), each from its own first byte: what follows one
waits until that one is answered.
"""

from __future__ import annotations

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser
from twisted.internet.interfaces import IPushProducer, ISSLTransport, ITCPTransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from iop.errors import InvalidRequest, IOPError
from iop.headers import Headers
from iop.web.errors import RequestTimeout
from iop.web.exchange import Exchange, ISiteOfExchange
from iop.web.framing import BodyEnd, check_head, head_end, without_upgrade
from iop.web.pump import STALLED_S

IDLE_S, HEAD_S, BODY_S, DISCARD_S, CLOSE_S = 75.0, 10.0, 30.0, 2.0, 60.0
AHEAD_BYTES = 16 * 1024          # read while an answer is under way: to hear of a client that leaves, the line must be read
BETWEEN_BYTES = 64 * 1024        # of a chunked body without a byte of the body: what stands beside it is dropped unread

log = Logger()


@implementer(IPushProducer)
class Channel(Protocol):  # type: ignore[misc]
    """One connection."""

    def __init__(self, site: ISiteOfExchange) -> None:
        self._site = site
        self.persistent = True                   # another request may follow
        self.phase = "IDLE"
        self._deadline: float | None = None
        self._full_since: float | None = None    # since when the transport takes no more
        self._parser = HttpRequestParser(self)
        self._exchange: Exchange | None = None   # whose head has been read
        self._waiting = b""                      # what was read and not parsed
        self._reading = False                    # in _read, or in what it calls
        self._deaf = False                       # the transport was told not to read
        self._new_message()

    def _new_message(self) -> None:
        self._target = b""
        self._headers = Headers()
        self._left: int | None = 0               # of the body; None where it comes in chunks
        self._between = 0
        self._end = BodyEnd()
        self._whole = False

    # --- the connection

    def connectionMade(self) -> None:
        self.local_address = getattr(self.transport.getHost(), "host", "")
        if ITCPTransport.providedBy(self.transport):
            self.transport.setTcpNoDelay(True)   # a stream's second small write would wait 40 ms for the first one's ACK
        self.transport.registerProducer(self, True)
        self._enter("IDLE", HEAD_S)
        self._site.channels.add(self)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._waiting = b""
        self.persistent = False
        try:
            if self._exchange is not None:
                self._exchange.client_gone()
        finally:
            self._site.left(self)

    def _enter(self, phase: str, deadline_s: float | None) -> None:
        self.phase = phase
        self._deadline = None if deadline_s is None else self._site.now() + deadline_s

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def abort(self) -> None:
        self.transport.abortConnection()

    @property
    def is_full(self) -> bool:
        """The transport takes no more."""
        return self._full_since is not None

    # --- reading, within limits

    def dataReceived(self, data: bytes) -> None:
        if not self.persistent:
            return
        self._waiting = self._waiting + data if self._waiting else data
        if self.phase == "HANDLING":
            if len(self._waiting) > AHEAD_BYTES:
                self._hear(False)
            return
        self._read()

    def _read(self) -> None:
        """Parse what waits, request by request, until one is being handled or there is not enough."""
        if self._reading:
            return
        self._reading = True
        try:
            while self._waiting and self.persistent and self.phase != "HANDLING" and self._read_on():
                pass
        except HttpParserCallbackError:
            log.failure("a fault while reading a request; its connection is closed")
            self.transport.abortConnection()
        except (HttpParserError, InvalidRequest):
            self._refuse_all(InvalidRequest("The head of the request, or what frames its body, is malformed or too large."))
        except IOPError as error:
            self._refuse_all(error)
        finally:
            self._reading = False

    def _read_on(self) -> bool:
        """Whether there may be more."""
        if self._exchange is not None:
            self._read_body(self._exchange)
            return True
        if self.phase == "IDLE":
            self._enter("HEAD", HEAD_S)
        data = self._waiting
        end = head_end(data)
        if not end:
            return False
        begin = check_head(data, end)
        self._waiting = data[end:]
        self._parse(without_upgrade(data[begin:end]))
        if self._whole and self._exchange is not None:
            self._handle(self._exchange)
        return True

    def _parse(self, data: bytes | memoryview) -> None:
        """Raises HttpParserError."""
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:                # of CONNECT, which is refused
            self._parser = HttpRequestParser(self)

    def _read_body(self, exchange: Exchange) -> None:
        """Give the parser no more than what belongs to this body."""
        data = self._waiting
        if self._left is not None:
            stop = min(self._left, len(data))
            self._left -= stop
            self._parse(data[:stop])
        else:
            stop = self._read_chunks(exchange, data)
        self._waiting = data[stop:]
        if exchange.refusal is not None and self.phase == "BODY":
            self.refuse(exchange, exchange.refusal)
        elif self._whole:
            self._handle(exchange)

    def _read_chunks(self, exchange: Exchange, data: bytes) -> int:
        """Up to where the body ends, or is refused."""
        stop, view = 0, memoryview(data)
        while stop < len(data) and not self._whole and exchange.refusal is None:
            start, stop = stop, self._end.find(data, stop)
            self._between += stop - start
            self._parse(view[start:stop])
            if self._between > BETWEEN_BYTES:
                raise InvalidRequest("There is too much between the pieces of the body.")
        return stop

    # --- what the parser finds

    def on_url(self, target: bytes) -> None:
        self._target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._exchange is None:               # else it is a trailer
            self._headers.add(name, value)

    def on_headers_complete(self) -> None:
        self._enter("BODY", BODY_S)
        version, headers, parser = self._parser.get_http_version(), self._headers, self._parser
        lengths = headers.getRawHeaders(b"content-length")
        chunked = headers.hasHeader(b"transfer-encoding")
        self._left = None if chunked else int(lengths[0]) if lengths else 0
        exchange = self._exchange = Exchange(self, self._site, version == "1.1",
                                             version == "1.1" and parser.should_keep_alive())
        exchange.head_received(parser.get_method(), self._target, version, headers, self._left)
        if exchange.refusal is not None and self._left != 0:
            self.refuse(exchange, exchange.refusal)
        elif self._left != 0 and version == "1.1" and headers.hasHeader(b"expect"):
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        self._between = 0
        if self._exchange is not None and self.phase == "BODY":
            self._exchange.body_received(data)

    def on_message_complete(self) -> None:
        self._whole = True

    def _handle(self, exchange: Exchange) -> None:
        if self.phase == "BODY":
            self._enter("HANDLING", None)
            self._new_message()
            exchange.begin()

    # --- ends

    def refuse(self, exchange: Exchange, error: IOPError) -> None:
        """Answer now, though the body is still to come; what comes of it is dropped."""
        exchange.refusal = error
        self._discard(exchange, error)

    def _refuse_all(self, error: IOPError) -> None:
        """What came is no request, or its body is none: where the next one begins is not known."""
        if self.phase in ("HEAD", "BODY"):
            self._discard(self._exchange or Exchange(self, self._site), error)

    def _discard(self, exchange: Exchange, error: IOPError) -> None:
        self._exchange = exchange
        exchange.persistent = self.persistent = False
        self._waiting = b""
        self._enter("DISCARDING", DISCARD_S)
        exchange.answer_error(error)

    def done(self, exchange: Exchange) -> None:
        """The answer of `exchange` is out."""
        self._exchange = None
        if self.phase == "DISCARDING":
            self._linger()
        elif exchange.persistent:
            self._enter("IDLE", IDLE_S)
            self._hear(not self.is_full)
            self._read()
        else:        # a client that still reads a long answer has longer to take it
            self.persistent = False
            self._enter("CLOSING", STALLED_S if self.is_full else CLOSE_S)
            self._lose()

    def _linger(self) -> None:
        """Close our side and go on reading for a moment: a close with unread bytes would take the answer away (RST)."""
        self.transport.unregisterProducer()
        if ISSLTransport.providedBy(self.transport):
            self.transport.loseConnection()
        else:
            self.transport.loseWriteConnection()

    def _lose(self) -> None:
        self.transport.unregisterProducer()
        self.transport.loseConnection()

    # --- IPushProducer: the transport is full, or not any more

    def pauseProducing(self) -> None:
        self._full_since = self._site.now()
        if self._exchange is not None:
            self._exchange.pause()
        if self.phase != "HANDLING":             # else it goes on reading, to hear of a client that leaves
            self._hear(False)

    def resumeProducing(self) -> None:
        self._full_since = None
        if self._exchange is not None:
            self._exchange.resume()
        self._hear(len(self._waiting) <= AHEAD_BYTES)

    def stopProducing(self) -> None:
        """connectionLost follows."""

    def _hear(self, willing: bool) -> None:
        """Have the transport read, or not."""
        if willing and self._deaf:
            self._deaf = False
            self.transport.resumeProducing()
        elif not willing and not self._deaf:
            self._deaf = True
            self.transport.pauseProducing()

    # --- deadlines

    def swept(self, now: float) -> None:
        """Once a second: end what is overdue."""
        if self.phase == "HANDLING":
            if self._exchange is not None:
                self._exchange.tick(now)
        elif self._deadline is not None and now >= self._deadline and not self._still_reads(now):
            self._overdue()

    def _still_reads(self, now: float) -> bool:
        """An idle connection whose last answer is not taken yet is not idle."""
        return self.phase == "IDLE" and self._full_since is not None and now - self._full_since < STALLED_S

    def _overdue(self) -> None:
        if self.phase in ("HEAD", "BODY"):
            self._refuse_all(RequestTimeout())
        elif self.phase == "IDLE":
            self.persistent = False
            self._enter("CLOSING", CLOSE_S)
            self._lose()
        else:
            self.transport.abortConnection()
