"""One answer under way: its run, its reader, and what happens when the client leaves (in any phase)."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from iop.edge.models.ending import Ending
from iop.edge.models.headers import answer_headers, failure_headers
from iop.edge.models.reader import TAKE_BYTES, WHOLE_BYTES, ModelReader, too_large
from iop.edge.models.teller import StreamTeller, WholeTeller, beat
from iop.edge.outliving import outliving
from iop.errors import IOPError
from iop.events import json_encode
from iop.interfaces import IEdgeService, IRunCursor
from iop.proto import run_pb2
from iop.records import RunRecord
from iop.runs import START
from iop.web.errors import error_response
from iop.web.responses import Response, StreamResponse

KEEPALIVE_S = 10.0           # after this long without output the 200 goes out, with a heartbeat
GONE = "client disconnected"


class ModelAnswer:
    """See the module. The caller abandons it unless its answer was told."""

    def __init__(self, edge: IEdgeService, clock: IReactorTime, source: run_pb2.Source, detach_s: float | None) -> None:
        self._edge = edge
        self._clock = clock
        self._source = source
        self._detach_s = detach_s
        self._begun_at = clock.seconds()
        self._overhead_s = 0.0           # what the edge took to submit, and from the first output on
        self._record: RunRecord | None = None
        self._cursor: IRunCursor | None = None
        self._abandoned = False
        self._woken = False
        self._waiting: Deferred[None] | None = None

    async def begin(self, request: run_pb2.RunRequest, key: str | None) -> None:
        """Submit the run and open its log. A client that leaves meanwhile does not undo the submit: the run is stopped."""
        request.detach_s = self._detach_s or 0.0
        self._record = await outliving(self._edge.submit(request, self._source, key), self._submitted_late)
        self._overhead_s = self._clock.seconds() - self._begun_at
        self._edge.attend(self._record.run_id)
        self._cursor = await self._edge.cursor(self._record.run_id, START)
        self._cursor.notify(self._wake)

    def _submitted_late(self, record: RunRecord) -> None:
        self._record = record
        self._edge.attend(record.run_id)
        self._stop_run(GONE)

    async def whole(self, teller: WholeTeller) -> Response:
        """The answer once the run has ended."""
        teller.ending.request_id = self._source.request_id
        while not self._reader.ended:
            for entry in await self._take():
                teller.read(entry)
            if teller.size > WHOLE_BYTES:
                return self._too_large(teller.ending, await self._headers(teller.ending))
        self._reader.close()
        headers = await self._headers(teller.ending)
        if not teller.ending.completed:
            return failed_response(teller.ending, headers)
        return Response(200, teller.body(), teller.media_type, headers)

    def _too_large(self, ending: Ending, headers: dict[str, str]) -> Response:
        error = too_large("Ask for it with `stream: true`.")
        self.abandon(error.message)
        return error_response(error, ending.dialect, headers)

    async def streamed(self, teller: StreamTeller) -> Response | StreamResponse:
        """The stream, once there is something to send; or the status of what failed before that."""
        teller.ending.request_id = self._source.request_id
        first = await self._first_output(teller)
        headers = await self._headers(teller.ending)
        if self._reader.ended and not teller.ending.completed and not first:
            self._reader.close()
            return failed_response(teller.ending, headers)
        pieces = [first] if first else [] if self._reader.ended else [beat(teller)]
        if self._reader.ended:
            try:
                pieces.append(teller.end())
            except IOPError:             # what cannot be told in a stream can still be told by its status
                self._reader.close()
                return failed_response(teller.ending, headers)
        return StreamResponse(ModelReader(self._reader, teller, pieces, self.abandon), 200, teller.media_type, headers)

    async def _first_output(self, teller: StreamTeller) -> bytes:
        """The first bytes for the client; empty when the run has ended without any, or after KEEPALIVE_S."""
        deadline = self._clock.seconds() + KEEPALIVE_S if teller.heartbeat else None
        while not self._reader.ended:
            entries = await self._take(deadline)
            told = b"".join([teller.write(entry) for entry in entries])
            if told or (deadline is not None and not entries and self._clock.seconds() >= deadline):
                return told
        return b""

    async def _take(self, deadline: float | None = None) -> list[Any]:
        """What there is to read; with nothing there, waits until there may be something, or for the deadline."""
        self._woken = False
        found = self._reader.take(TAKE_BYTES)
        entries = await found if isinstance(found, Deferred) else found
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

    async def _headers(self, ending: Ending) -> dict[str, str]:
        try:
            record = await self._edge.run(self.record.run_id)
        except IOPError:         # the answer is worth more than what stands beside it
            record = self.record
        return answer_headers(record, ending, self._overhead_s) | self._edge.allowance(self._source.principal)

    @property
    def record(self) -> RunRecord:
        """The run, once begin() has fired."""
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
        abandon, run_id = self._edge.abandon, self.record.run_id
        if self._detach_s is None:
            abandon(run_id, self._source, reason)
        else:
            reason = f"{reason} and did not come back in {self._detach_s:g} s"
            self._clock.callLater(self._detach_s, abandon, run_id, self._source, reason)


def failed_response(ending: Ending, headers: dict[str, str]) -> Response:
    """A run that ended badly before anything was sent: its status, and the backend's own words where it had some."""
    return Response(ending.status, json_encode(ending.error_json()), headers=headers | failure_headers(ending))
