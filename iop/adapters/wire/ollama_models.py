"""Ollama's models: loaded into memory and out of it, and fetched from its library, with the progress it tells (docs/api.md of
ollama/ollama, "Load a model", "Pull a Model")."""

from __future__ import annotations

from typing import Any

import msgspec
from twisted.internet.defer import Deferred

from iop.adapters.wire.client import HttpClient
from iop.adapters.wire.exchange import Exchange
from iop.errors import IOPError, NotFound, UpstreamError
from iop.servers import Told

LOAD_S = 600.0           # a large model from a slow disk
PULL_QUIET_S = 120.0     # while nothing comes at all
LINE_BYTES = 64 * 1024


async def keep(client: HttpClient, url: str, model: str, keep_alive: str | int | None) -> None:
    """Load it for that long (None: Ollama's own default), or unload it (0). Raises UpstreamError."""
    asked: dict[str, Any] = {"model": model, "stream": False}
    if keep_alive is not None:
        asked["keep_alive"] = keep_alive
    status, body = await client.fetch(f"{url}/api/generate", {}, msgspec.json.encode(asked), within_s=LOAD_S)
    if status != 200:
        raise UpstreamError(f"Ollama answered {status}: {_error_in(body) or 'no reason'}.", status=status)


class Pull:
    """One pull, to its end: the Receiver of its stream. `done` fires with None or fails with an IOPError; cancelling it ends
    the pull, which Ollama goes on with from there when it is asked again."""

    def __init__(self, client: HttpClient, url: str, model: str, told: Told) -> None:
        self.done: Deferred[None] = Deferred(self._cancelled)
        self._model = model
        self._told = told
        self._status = 0
        self._left = b""
        self._succeeded = False
        self._error = ""
        body = msgspec.json.encode({"model": model, "stream": True})
        self._exchange: Exchange | None = None
        self._exchange = client.ask(b"POST", f"{url}/api/pull", {}, body, self, first_byte_s=PULL_QUIET_S,
                                    first_token_s=PULL_QUIET_S, idle_s=PULL_QUIET_S)

    def _cancelled(self, done: object) -> None:
        if self._exchange is not None:
            self._exchange.abort(IOPError("The pull was given up."))

    # Receiver

    def reply_started(self, status: int, headers: Any) -> None:
        self._status = status

    def bytes_received(self, data: bytes) -> None:
        *lines, self._left = (self._left + data).split(b"\n")
        self._left = self._left[:LINE_BYTES]
        for line in filter(None, lines):
            self._line(line)

    def read_finished(self) -> None:
        if self._exchange is not None:
            self._exchange.heard()

    def reply_ended(self, error: IOPError | None) -> None:
        if self._left:
            self._line(self._left)
        if self._error or self._status not in (0, 200):
            sentence = self._error or f"Ollama answered {self._status} to the pull."
            self.done.errback(NotFound(f"{self._model}: {sentence}") if "does not exist" in sentence or self._status == 404
                              else UpstreamError(f"{self._model}: {sentence}", status=self._status))
        elif error is not None or not self._succeeded:
            self.done.errback(error or UpstreamError("Ollama ended the pull without saying that it is whole."))
        else:
            self.done.callback(None)

    def _line(self, line: bytes) -> None:
        self._error = self._error or _error_in(line)
        told = _told_in(line)
        if told is not None:
            detail, progress = told
            self._succeeded = detail == "success"
            self._told(detail, progress)


def _told_in(line: bytes) -> tuple[str, float] | None:
    """The status of one line, and how far its layer is."""
    found = _object(line)
    status = found.get("status")
    if not isinstance(status, str):
        return None
    completed, total = found.get("completed"), found.get("total")
    known = isinstance(total, int) and isinstance(completed, int) and total > 0
    return status[:200], min(1.0, completed / total) if known else 0.0


def _error_in(body: bytes) -> str:
    return str(_object(body).get("error", ""))[:500]


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
