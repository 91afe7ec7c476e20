"""One run on a model backend: a request, its reply through a reader, and how that ends."""

from __future__ import annotations

import http
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from iop import events
from iop.adapters.executions import Execution
from iop.adapters.wire.asked import Asked
from iop.adapters.wire.exchange import Exchange, Receiver
from iop.adapters.wire.refusals import RETRYABLE, error_text, retry_after
from iop.errors import IOPError, UpstreamError
from iop.headers import Headers
from iop.proto.run_pb2 import Outcome, RuntimeEvent
from iop.runs import ExecutionSpec

ERROR_BODY_BYTES = 64 * 1024
UNSAID = 100                       # chunks that say nothing; more of them are passed on as they come
LINGER_S = 1.0                     # between the backend's last word and the end of the body

Ask = Callable[[Asked, Receiver], Exchange]


class ModelRun(Execution):
    """See the module. Of the readers of what was asked, the one that takes the reply's media type reads a reply of 200."""

    def __init__(self, spec: ExecutionSpec, sink: Any, asked: Asked, backend: str, *, idle_by_bytes: bool = False) -> None:
        super().__init__(sink)
        self._spec = spec
        self._asked = asked
        self._reader = asked.readers[0]
        self._backend = backend
        self._idle_by_bytes = idle_by_bytes      # also comments and empty chunks count as something said
        self._ask: Ask | None = None
        self._exchange: Exchange | None = None
        self._status = 0
        self._retry_after_s = 0.0
        self._pieces: list[bytes] = []
        self._error_bytes = 0
        self._has_output = False
        self._begun: list[RuntimeEvent] = []     # that it has started: told with what else the same read brings
        self._unsaid: list[RuntimeEvent] = []    # chunks from before the first that says something

    def begin(self, ask: Ask) -> None:
        """`ask` sends a request; more than one where the backend refuses the first and something else can be asked."""
        self._ask = ask
        self._exchange = ask(self._asked, self)

    def _stop(self, error: IOPError) -> None:
        if self._exchange is not None:
            self._exchange.abort(error)

    def _pause(self) -> None:
        if self._exchange is not None:
            self._exchange.pause()

    def _resume(self) -> None:
        if self._exchange is not None:
            self._exchange.resume()

    def _abort(self, error: IOPError) -> None:
        """The connection is of no more use; a stop that came before keeps the word."""
        if self._exchange is not None:
            self._exchange.abort(error)

    # the exchange's receiver

    def reply_started(self, status: int, headers: Headers) -> None:
        self._status = status
        if status != 200:
            self._retry_after_s = retry_after(_first(headers, b"retry-after-ms"), _first(headers, b"retry-after"))
            return
        media_type = _first(headers, b"content-type")
        fault = _encoding_fault(headers) or self._choose_reader(media_type)
        if fault:
            self._abort(UpstreamError(fault, status=status))
            return
        self._asked.answered()
        response = _response(status, (self._reader.told_as or media_type)[:200], self._asked.api)
        self._begun = [events.started(self._spec.adapter, self._spec.target, self._backend,
                                      response=response),
                       *(events.status("warning", warning) for warning in self._asked.warnings)]

    def _choose_reader(self, media_type: bytes) -> str:
        """Empty, or why nobody reads this reply."""
        told = media_type.partition(b";")[0].strip().lower()
        for reader in self._asked.readers:
            if reader.takes(told):
                self._reader = reader
                return ""
        return (f"The backend answered with the content type {media_type[:100].decode('latin-1')!r} where "
                f"{(self._reader.told_as or self._reader.media_type).decode()!r} was asked for.")

    def bytes_received(self, data: bytes) -> None:
        self._pieces.append(data)
        if self._status != 200:
            self._error_bytes += len(data)
            if self._error_bytes >= ERROR_BODY_BYTES:
                self._abort(self._refusal())

    def read_finished(self) -> None:
        if self._exchange is None or not self._pieces:
            self._emit_read([])
            return
        before = self._reader.heard
        if self._status == 200:
            try:
                self._flush()
            except UpstreamError as error:
                self._abort(error)
                return
            finally:
                self._emit_read([])
            if self._reader.done:
                self._exchange.linger(LINGER_S)
                return
        if self._idle_by_bytes or self._status != 200 or self._reader.heard != before:
            self._exchange.heard()

    def reply_ended(self, error: IOPError | None) -> None:
        if self._stopped is not None:
            self._emit_read([])
            self._end_with(self._stopped)
            return
        if self._status not in (0, 200) and self._asks_otherwise():
            return
        error = self._conclude(error) if self._status == 200 else self._refusal(error)
        if error is not None and self._asks_again(error):
            return
        self._emit_read([])
        if error is None:
            self._complete()
            return
        if self._has_output and isinstance(error, UpstreamError):
            error.retryable = False  # output has been seen
        self._end_with(error)

    def _asks_again(self, error: IOPError) -> bool:
        """Whether the same is asked once more, instead of an end with `error`."""
        return False

    def _asks_otherwise(self) -> bool:
        """Whether something else is asked instead. A refused request has begun nothing."""
        try:
            asked = self._asked.otherwise(self._status, b"".join(self._pieces))
        except IOPError as error:
            self._end_with(error)
            return True
        if asked is None or self._ask is None:
            return False
        self._forget_reply(asked)
        self._exchange = self._ask(asked, self)
        if self._paused:
            self._exchange.pause()
        return True

    def _forget_reply(self, asked: Asked) -> None:
        """Nothing of it was told; `asked` is asked next."""
        self._asked, self._reader = asked, asked.readers[0]
        self._status, self._pieces, self._error_bytes, self._retry_after_s = 0, [], 0, 0.0
        self._begun, self._unsaid = [], []

    # readings

    def _flush(self) -> None:
        data = b"".join(self._pieces)
        self._pieces = []
        self._tell_of(self._reader.feed(data))
        if self._reader.fault is not None:
            raise self._reader.fault

    def _tell_of(self, found: list[RuntimeEvent]) -> None:
        """vLLM sends the answer's role before it reads the prompt: told at once, that would rule out another node for a
        run of which nothing was said.
        """
        if found and not self._reader.heard and len(self._unsaid) < UNSAID:
            self._unsaid += found
        elif found:
            self._say(found)

    def _say(self, found: list[RuntimeEvent]) -> None:
        told, self._unsaid = self._unsaid + found, []
        if told:
            self._has_output = True
            self._emit_read(told)

    def _emit_read(self, told: list[RuntimeEvent]) -> None:
        """With what came before it in the same read."""
        begun, self._begun = self._begun, []
        if begun or told:
            self._emit(begun + told)

    def _conclude(self, error: IOPError | None) -> IOPError | None:
        """The error that a reply of 200 amounts to, now that it has ended with `error`; None when it is whole."""
        try:
            if self._pieces:
                self._flush()
            if error is None and not self._reader.done:
                self._tell_of(self._reader.finish())
                if self._reader.fault is not None:
                    raise self._reader.fault
        except UpstreamError as fault:
            return error or fault
        if self._reader.done:               # the backend's own last word has come: how the connection ended is no matter
            self._say([])
            return None
        return error or UpstreamError("The backend's stream ended without its end marker; it may be cut.", status=200,
                                      retryable=True)

    def _refusal(self, error: IOPError | None = None) -> IOPError:
        """What a reply without 200 amounts to: the backend's own words as far as they came, or why there was none."""
        if self._status == 0:
            return error or UpstreamError("The backend gave no answer.", retryable=True)
        body = b"".join(self._pieces)[:ERROR_BODY_BYTES]
        try:
            phrase = http.HTTPStatus(self._status).phrase
        except ValueError:
            phrase = "an unknown status"
        if 300 <= self._status < 400:
            sentence = f"The backend answered {self._status} ({phrase}), a redirect; redirects are not followed."
        else:
            sentence = f"The backend answered {self._status} ({phrase}). {error_text(body)}".strip()
        return UpstreamError(sentence, status=self._status, body=body, retryable=self._status in RETRYABLE,
                             retry_after_s=self._retry_after_s)

    def _complete(self) -> None:
        outcome = Outcome(code="ok", upstream_status=200, finish_reason=self._reader.finish_reason)
        if self._reader.usage is not None:
            outcome.usage.CopyFrom(self._reader.usage)
        self._end("completed", outcome)


@lru_cache(256)
def _response(status: int, media_type: bytes, api: str) -> bytes:
    response = {"status": status, "content_type": media_type.decode("latin-1")}
    return msgspec.json.encode(response | {"api": api} if api else response)


def _first(headers: Headers, name: bytes) -> bytes:
    return (headers.getRawHeaders(name) or [b""])[0]


def _encoding_fault(headers: Headers) -> str:
    encoding = _first(headers, b"content-encoding").strip().lower()
    if encoding in (b"", b"identity"):
        return ""
    return f"The backend sent a compressed reply ({encoding[:40].decode('latin-1')}), though identity was asked for."
