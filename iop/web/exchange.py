"""One request and its answer: from the head, through its handler, to the last byte or the client's leaving."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from iop.errors import IOPError, TooLarge
from iop.headers import Headers
from iop.web.errors import error_response, fault_response
from iop.web.pump import Pump
from iop.web.request import Request, dialect_of, request_id_of
from iop.web.responses import Response, StreamResponse

log = Logger()

REASONS = {status.value: status.phrase.encode("ascii") for status in HTTPStatus}
_NO_BODY = (204, 304)
# On every answer: what a browser may make of it, which is nothing.
_ALWAYS = b"X-Content-Type-Options: nosniff\r\nContent-Security-Policy: default-src 'none'"


class ISiteOfExchange(Protocol):
    """What an exchange and its channel need of the site that made them."""

    admission: Any
    channels: set[Any]

    def now(self) -> float: ...
    def date(self) -> str: ...
    def answered(self, route: str, method: bytes, status: int, seconds: float) -> None: ...
    def streaming(self, route: str, seconds: float) -> None: ...
    def left(self, channel: Any) -> None: ...


class IChannelOfExchange(Protocol):
    """What an exchange needs of its connection."""

    local_address: str
    is_full: bool

    def write(self, data: bytes) -> None: ...
    def abort(self) -> None: ...
    def done(self, exchange: Exchange) -> None: ...


class Exchange:
    """One request of a channel, from its head to its answer. `in_chunks`: whether it may be answered so."""

    def __init__(self, channel: IChannelOfExchange, site: ISiteOfExchange, in_chunks: bool = False,
                 persistent: bool = False) -> None:
        self.persistent = persistent             # another request may follow on the connection
        self.asked: Request | None = None
        self.refusal: IOPError | None = None
        self.route_label = ""
        self._channel = channel
        self._site = site
        self._in_chunks = in_chunks
        self._method, self._path = b"", ""
        self._headers = Headers()
        self._request_id = ""                    # while there is no `asked` to tell it
        self._begun = site.now()
        self._limit = self._size = self._status = 0
        self._chunks: list[bytes] = []
        self._work: Deferred[Any] | None = None
        self._pump: Pump | None = None
        self._gone = self._over = False          # the client is gone; the answer is out

    # --- the head and the body

    def head_received(self, method: bytes, target: bytes, version: str, headers: Headers, length: int | None) -> None:
        """Decide on the request before its body. A refusal is kept, for the channel to answer with."""
        self._method, self._headers = method, headers
        self._path = target.decode("latin-1").partition("?")[0]
        try:
            self.asked, route = self._site.admission.admit(method, target, version, headers, self._channel.local_address)
            self.route_label = route.path
            self._handler, self._limit = route.handler, route.body_limit
            if length is not None and length > self._limit:
                raise TooLarge(f"The body may have {self._limit} bytes here.")
        except IOPError as error:
            self.refusal = error
            self._request_id = request_id_of(headers)

    def body_received(self, data: bytes) -> None:
        if self.refusal is not None:
            return
        self._size += len(data)
        if self._size > self._limit:
            self._chunks.clear()
            self.refusal = TooLarge(f"The body may have {self._limit} bytes here.")
        else:
            self._chunks.append(data)

    def begin(self) -> None:
        """The body is whole: have it handled."""
        if self.refusal is not None or self.asked is None:
            self.answer_error(self.refusal or IOPError())
            return
        self.asked.body = b"".join(self._chunks)
        self._chunks.clear()
        work = self._work = Deferred.fromCoroutine(self._handler(self.asked))
        work.addCallbacks(self._answered, self._failed)      # may have happened already
        work.addErrback(self._fault)

    # --- the answer

    def _answered(self, response: Response | StreamResponse) -> None:
        self._work = None
        if isinstance(response, StreamResponse):
            self._stream(response)
        else:
            self.answer(response)

    def _failed(self, failure: Failure) -> None:
        self._work = None
        if failure.check(IOPError):
            self.answer_error(failure.value)
        elif not (self._gone and failure.check(CancelledError)):
            self._fault(failure)

    def _fault(self, failure: Failure) -> None:
        """A fault of ours: in the log with the request's id, in the body only the id."""
        self._work = None
        request_id = self.asked.request_id if self.asked is not None else "none"
        log.failure("fault {id} while answering {route}", failure, id=request_id, route=self.route_label)
        if self._status:
            self._channel.abort()
        else:
            self.answer(fault_response(request_id, self._dialect()))

    def _dialect(self) -> str:
        if self.asked is not None:
            return self.asked.dialect
        return dialect_of(self._path)

    def answer_error(self, error: IOPError) -> None:
        request_id = self.asked.request_id if self.asked is not None else self._request_id
        self.answer(error_response(error, self._dialect(), request_id=request_id))

    def answer(self, response: Response) -> None:
        """Write a whole response, in one write."""
        if self._gone or self._over:
            return
        length = [("Content-Length", str(len(response.body)))] if response.status not in _NO_BODY else []
        head = self._head(response, length)
        self._channel.write(head if self._method == b"HEAD" or response.status in _NO_BODY else head + response.body)
        self._done()

    def _head(self, response: Response | StreamResponse, more: list[tuple[str, str]]) -> bytes:
        self._status = response.status
        headers = {"Date": self._site.date(), "Content-Type": response.content_type, "Cache-Control": "no-store"}
        request_id = self.asked.request_id if self.asked is not None else self._request_id
        if request_id:
            headers["x-request-id"] = request_id
        headers.update(response.headers)
        headers.update(more)
        if self._site.admission.cors:
            headers.update(self._site.admission.cors.headers(self._headers, self._path))
        headers["Connection"] = "keep-alive" if self.persistent else "close"
        if not "".join(headers.values()).isprintable():
            headers = {name: _printable(value) for name, value in headers.items()}
        lines = "\r\n".join([f"{name}: {value}" for name, value in headers.items()]).encode("latin-1", "replace")
        return b"HTTP/1.1 %d %b\r\n%b\r\n%b\r\n\r\n" % (
            response.status, REASONS.get(response.status, b"Unknown"), _ALWAYS, lines)

    def _stream(self, response: StreamResponse) -> None:
        if self._gone:
            response.source.close()
            return
        if not self._in_chunks:
            self.persistent = False
        self._channel.write(self._head(response, [("Transfer-Encoding", "chunked")] if self._in_chunks else []))
        if self._method == b"HEAD":
            response.source.close()
            self._done()
            return
        self._site.streaming(self.route_label, self._site.now() - self._begun)
        self._pump = Pump(response.source, self._write_piece, self._streamed, self._site.now)
        if self._channel.is_full:
            self._pump.pauseProducing()
        self._pump.start()

    def _write_piece(self, data: bytes) -> None:
        self._channel.write(b"%x\r\n%b\r\n" % (len(data), data) if self._in_chunks else data)

    def _streamed(self, whole: bool) -> None:
        """The pump is done. A broken stream breaks the connection, so that no reader takes it for whole."""
        self._pump = None
        if self._gone:
            return
        if not whole:
            self._channel.abort()
            return
        if self._in_chunks:
            self._channel.write(b"0\r\n\r\n")
        self._done()

    def _done(self) -> None:
        self._over = True
        self._site.answered(self.route_label, self._method, self._status, self._site.now() - self._begun)
        self._channel.done(self)

    # --- the client

    def pause(self) -> None:
        """It takes no more for now."""
        if self._pump is not None:
            self._pump.pauseProducing()

    def resume(self) -> None:
        if self._pump is not None:
            self._pump.resumeProducing()

    def tick(self, now: float) -> None:
        """Once a second."""
        if self._pump is not None:
            self._pump.tick(now)

    def client_gone(self) -> None:
        """Nobody takes the answer any more."""
        self._gone = True
        self._chunks.clear()
        if self._pump is not None:
            pump, self._pump = self._pump, None
            pump.stop()
        if self._work is not None:
            self._work.cancel()


def _printable(value: str) -> str:
    """Without what could end its line, so that no value makes a second one."""
    return "".join(filter(str.isprintable, value))
