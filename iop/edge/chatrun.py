"""One chat under way: its run, its reader, and what happens when the client leaves (in any phase)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from iop.edge.chat import ChatBody, ChatStream, Ending
from iop.edge.outliving import outliving
from iop.errors import IOPError, OutputLimit
from iop.events import json_encode
from iop.interfaces import IEdgeService, IRunCursor
from iop.proto import run_pb2
from iop.records import RunRecord
from iop.runs import START
from iop.web.errors import OPENAI, RETRY_AFTER_S, SDK_RETRIES, error_response
from iop.web.responses import Response, StreamResponse
from iop.web.sse import COMMENT

KEEPALIVE_S = 10.0           # after this long without output the 200 goes out, with a comment
TAKE_BYTES = 256 * 1024
WHOLE_BYTES = 32 * 1024 * 1024   # of an answer in one piece: it stands in memory a few times, and is encoded in one turn
GONE = "client disconnected"


class ChatAnswer:
    """One chat under way: its run, its reader, and who is to be told when the client leaves."""

    def __init__(self, edge: IEdgeService, clock: IReactorTime, source: run_pb2.Source, detach_s: float | None) -> None:
        self._edge = edge
        self._clock = clock
        self._source = source
        self._detach_s = detach_s
        self._record: RunRecord | None = None
        self._cursor: IRunCursor | None = None
        self._abandoned = False
        self._woken = False
        self._waiting: Deferred[None] | None = None

    async def begin(self, request: run_pb2.RunRequest, key: str | None) -> None:
        """Submit the run and open its log. A client that leaves meanwhile does not undo the submit: the run is stopped."""
        request.detach_s = self._detach_s or 0.0
        self._record = await outliving(self._edge.submit(request, self._source, key), self._submitted_late)
        self._edge.attend(self._record.run_id)
        self._cursor = await self._edge.cursor(self._record.run_id, START)
        self._cursor.notify(self._wake)

    def _submitted_late(self, record: RunRecord) -> None:
        self._record = record
        self._edge.attend(record.run_id)
        self._stop_run(GONE)

    async def whole(self, model: str) -> Response:
        """The answer once the run has ended."""
        body = ChatBody(self._run.run_id, self._run.created_us // 1_000_000, model)
        headers: dict[str, str] | None = None
        while not self._reader.ended:
            for entry in await self._take():
                body.read(entry)
            headers = headers or await self._headers()
            if body.size > WHOLE_BYTES:
                return self._too_long(headers)
        self._reader.close()
        if not body.ending.completed:
            return failed_response(body.ending, headers or {})
        return Response(200, body.body(), headers=headers)

    def _too_long(self, headers: dict[str, str]) -> Response:
        error = OutputLimit(f"The answer has more than {WHOLE_BYTES >> 20} MiB, which is the limit of one in one piece.",
                            hint="Ask for it with `stream: true`.")
        self.abandon(error.message)
        return error_response(error, OPENAI, headers)

    async def streamed(self, model: str, with_usage: bool) -> Response | StreamResponse:
        """The stream, once there is something to send; or the status of what failed before that."""
        chat = ChatStream(self._run.run_id, self._run.created_us // 1_000_000, model, with_usage)
        first = await self._first_output(chat)
        headers = await self._headers()
        if self._reader.ended and not chat.ending.completed and not first:
            self._reader.close()
            return failed_response(chat.ending, headers)
        pieces = [first] if first else [] if self._reader.ended else [COMMENT]
        if self._reader.ended:
            pieces.append(chat.end())
        return StreamResponse(ChatReader(self._reader, chat, pieces, self.abandon), headers=headers)

    async def _first_output(self, chat: ChatStream) -> bytes:
        """The first bytes for the client; empty when the run has ended without any, or after KEEPALIVE_S."""
        deadline = self._clock.seconds() + KEEPALIVE_S
        while not self._reader.ended:
            entries = await self._take(deadline)
            told = b"".join([chat.write(entry) for entry in entries])
            if told or (not entries and self._clock.seconds() >= deadline):
                return told
        return b""

    async def _take(self, deadline: float | None = None) -> list[Any]:
        """What there is to read; with nothing there, waits until there may be something, or for the deadline."""
        self._woken = False
        taken = self._reader.take(TAKE_BYTES)
        entries = await taken if isinstance(taken, Deferred) else taken
        if not entries and not self._reader.ended and not self._woken:
            await self._wait(deadline)
        return entries

    def _wait(self, deadline: float | None) -> Deferred[None]:
        """Fires when the log has told of more, or at the deadline (clock time)."""
        waiting = self._waiting = Deferred()
        if deadline is not None:
            timer = self._clock.callLater(max(0.0, deadline - self._clock.seconds()), self._wake)
            waiting.addBoth(lambda result: (timer.cancel() if timer.active() else None, result)[1])
        return waiting

    def _wake(self) -> None:
        self._woken = True
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.called:
            waiting.callback(None)

    async def _headers(self) -> dict[str, str]:
        try:
            record = await self._edge.run(self._run.run_id)
        except IOPError:         # the answer is worth more than what stands beside it
            record = self._run
        waited_us = max(0, (record.placed_us or record.ended_us or record.created_us) - record.created_us)
        headers = {"x-iop-run-id": record.run_id, "x-iop-queue-ms": str(waited_us // 1000)}
        if record.node_id:
            headers["x-iop-node"] = record.node_id
        return headers

    @property
    def _run(self) -> RunRecord:
        if self._record is None:
            raise IOPError("The run was not submitted.")
        return self._record

    @property
    def _reader(self) -> IRunCursor:
        if self._cursor is None:
            raise IOPError("The run's log was not opened.")
        return self._cursor

    def abandon(self, reason: str = GONE) -> None:
        """Nobody reads any more; the run is stopped unless it has ended."""
        ended = self._cursor is not None and self._cursor.ended
        if self._cursor is not None:
            self._cursor.close()
        if self._record is not None and not ended:
            self._stop_run(reason)

    def _stop_run(self, reason: str) -> None:
        if self._abandoned:
            return
        self._abandoned = True
        abandon, run_id = self._edge.abandon, self._run.run_id
        if self._detach_s is None:
            abandon(run_id, self._source, reason)
        else:
            reason = f"{reason} and did not come back in {self._detach_s:g} s"
            self._clock.callLater(self._detach_s, abandon, run_id, self._source, reason)


class ChatReader:
    """The rest of a chat's stream, for the pump."""

    heartbeat = COMMENT

    def __init__(self, cursor: IRunCursor, chat: ChatStream, first: list[bytes], abandon: Callable[[], object]) -> None:
        self._cursor = cursor
        self._chat = chat
        self._first = first
        self._abandon = abandon
        self.ended = False

    def take(self, limit_bytes: int) -> list[bytes] | Deferred[list[bytes]]:
        if self._first:
            first, self._first = self._first, []
            self.ended = self._cursor.ended
            return first
        taken = self._cursor.take(limit_bytes)
        if not isinstance(taken, list):
            return taken.addCallback(self._formatted)
        return self._formatted(taken) if taken or self._cursor.ended else []

    def _formatted(self, entries: list[Any]) -> list[bytes]:
        told = [self._chat.write(entry) for entry in entries]
        self.ended = self._cursor.ended
        if self.ended:
            told.append(self._chat.end())
        return told

    def notify(self, callback: Callable[[], object]) -> None:
        self._cursor.notify(callback)

    def close(self) -> None:
        self._abandon()


def failed_response(ending: Ending, headers: dict[str, str]) -> Response:
    """A run that ended badly before anything was sent: its status, and the backend's own words where it had some."""
    if ending.started or (ending.status in SDK_RETRIES and not ending.outcome.retryable):
        headers["x-should-retry"] = "false"
    return Response(ending.status, json_encode(ending.error_json()),
                    headers=headers | _retry_after(ending.outcome.code))


def _retry_after(code: str) -> dict[str, str]:
    return {"Retry-After": str(RETRY_AFTER_S[code])} if code in RETRY_AFTER_S else {}
