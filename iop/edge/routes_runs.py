"""The management API of runs and sessions."""

from __future__ import annotations

import base64
import binascii
import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from twisted.internet.defer import Deferred

from iop.config import LimitsConfig
from iop.edge.readers import RunReader
from iop.edge.registry import PROGRAM_ADAPTERS
from iop.edge.submit import check_idempotency_key
from iop.errors import InvalidRequest, NoSuchRun
from iop.events import batch_dicts, json_encode
from iop.interfaces import IEdgeService
from iop.proto import run_pb2
from iop.records import RunQuery, RunRecord
from iop.runs import START, STATES, EventId, is_run_id
from iop.web.auth import ADMIN, Principal
from iop.web.request import Request
from iop.web.responses import Response, StreamResponse, json_response
from iop.web.route import Route

EVENTS_BYTES = 8 * 1024 * 1024               # of one page of events: a page ends there, whatever its limit
TAKE_BYTES = 256 * 1024

Text = Annotated[str, Meta(max_length=256)]
Name = Annotated[str, Meta(min_length=1, max_length=256)]
Limit = Annotated[int, Meta(ge=1, le=1000)]


class _Body(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    pass


class RunInput(_Body):
    """Exactly one of them."""

    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    body: dict[str, Any] | None = None


class RunBody(_Body):
    """Without an adapter, `target` is a name as model APIs take it; of the targets that it means, one is chosen."""

    target: Name
    input: RunInput
    adapter: Name | None = None
    labels: dict[Text, Text] = {}
    session_id: Text = ""
    priority: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    limits: LimitsConfig = LimitsConfig()
    retry: Literal["safe", "never"] | None = None    # None: as the target says


class CancelBody(_Body):
    reason: Annotated[str, Meta(max_length=1000)] = ""


class InputBody(_Body):
    """`text`, or bytes in base 64; `end` closes the program's standard input."""

    text: str = ""
    bytes_b64: str = ""
    end: bool = False


class RunsQuery(_Body):
    state: Literal["", *STATES] = ""  # type: ignore[valid-type]
    adapter: Text = ""
    target: Text = ""
    node: Text = ""
    session: Text = ""
    since: Text = ""
    limit: Limit = 50
    cursor: Text = ""


class EventsQuery(_Body):
    """`late`: instead, what came after the run's ending and is kept apart."""

    after: Text = ""
    limit: Limit = 1000
    late: bool = False


class RunRoutes:
    """Runs: submit, list, show, follow, cancel, input. A key without `admin` sees only what it submitted itself."""

    def __init__(self, edge: IEdgeService, body_limit: int) -> None:
        self._edge = edge
        self._body_limit = body_limit

    def routes(self) -> list[Route]:
        run = "/api/v1/runs/{run_id}"
        return [
            Route("POST", "/api/v1/runs", "runs:write", self.submit, "Submit a run", body=RunBody,
                  body_limit=self._body_limit, success=202, answer="submitted", errors=(404, 409, 429, 503),
                  headers=("Idempotency-Key",)),
            Route("GET", "/api/v1/runs", "runs:read", self.list, "List runs, the newest first", query=RunsQuery,
                  answer="runs", errors=(503,)),
            Route("GET", run, "runs:read", self.show, "Show a run", answer="run", errors=(404, 503)),
            Route("GET", run + "/events", "runs:read", self.events, "A run's events: a page, or a stream until it ends",
                  query=EventsQuery, answer="events", streams=True, errors=(404, 503), headers=("Last-Event-ID",)),
            Route("GET", run + "/verify", "runs:read", self.verify, "Recompute from history whether it has the run whole",
                  answer="verification", errors=(404, 503)),
            Route("POST", run + "/cancel", "runs:write", self.cancel, "Ask for the end of a run; idempotent", body=CancelBody,
                  success=202, answer="submitted", errors=(404, 503)),
            Route("POST", run + "/input", "runs:write", self.give_input, "More input for a running program", body=InputBody,
                  success=202, answer="submitted", errors=(404, 409, 503)),
            Route("GET", "/api/v1/sessions", "runs:read", self.sessions, "List sessions", answer="sessions", errors=(503,)),
            Route("DELETE", "/api/v1/sessions/{session_id}", "runs:write", self.close_session,
                  "Let no further run continue a session", answer="session", errors=(404, 409, 503)),
        ]

    async def submit(self, request: Request) -> Response:
        asked = request.json(RunBody)
        adapters = {asked.adapter} if asked.adapter else {adapter for adapter, _, _ in self._edge.targets(asked.target)}
        if adapters & PROGRAM_ADAPTERS:
            request.principal.require("programs")
        record = await self._edge.submit(run_request(asked), request.source, idempotency_key(request))
        return _told(record, {"Location": f"/api/v1/runs/{record.run_id}"})

    async def list(self, request: Request) -> Response:
        asked = request.query(RunsQuery)
        query = RunQuery(state=asked.state, adapter=asked.adapter, target=asked.target, node_id=asked.node,
                         session_id=asked.session, principal=owner_of(request.principal), since_us=since_us(asked.since),
                         limit=asked.limit, cursor=asked.cursor)
        records, following = await self._edge.runs(query)
        return json_response({"runs": [record.as_dict() for record in records], "next": following or None})

    async def show(self, request: Request) -> Response:
        record = await self._seen(request)
        return json_response(record.as_dict() | {"position": self._edge.position(record.run_id) or None})

    async def events(self, request: Request) -> Response | StreamResponse:
        asked = request.query(EventsQuery)
        after = EventId.parse((request.header("last-event-id") if request.wants_stream else "") or asked.after)
        record = await self._seen(request)
        if asked.late:
            if request.wants_stream:
                raise InvalidRequest("Late events come in pages of JSON only.")
            return json_response(_late_page(await self._edge.late(record.run_id, after), after, asked.limit))
        cursor = await self._edge.cursor(record.run_id, after)
        if request.wants_stream:
            return StreamResponse(RunReader(cursor))
        try:
            return Response(200, await _page(cursor, asked))
        finally:
            cursor.close()

    async def verify(self, request: Request) -> Response:
        record = await self._seen(request)
        return json_response((await self._edge.verify(record.run_id)).as_dict())

    async def cancel(self, request: Request) -> Response:
        reason = request.json(CancelBody).reason if request.body else ""
        record = await self._seen(request)
        return _told(await self._edge.cancel(record.run_id, request.source, reason))

    async def give_input(self, request: Request) -> Response:
        asked = request.json(InputBody)
        if asked.text and asked.bytes_b64:
            raise InvalidRequest("Give `text` or `bytes_b64`, not both.")
        try:
            data = base64.b64decode(asked.bytes_b64, validate=True) or asked.text.encode("utf-8")
        except (binascii.Error, ValueError):
            raise InvalidRequest("`bytes_b64` is not base 64.") from None
        record = await self._seen(request)
        await self._edge.give_input(record.run_id, data, asked.end, request.source)
        return _told(record)

    async def sessions(self, request: Request) -> Response:
        return json_response({"sessions": [record.as_dict() for record in await self._edge.sessions()]})

    async def close_session(self, request: Request) -> Response:
        return json_response((await self._edge.close_session(request.args["session_id"], request.source)).as_dict())

    async def _seen(self, request: Request) -> RunRecord:
        """The run of the path, if it exists for this key: another's run is told like one that is not there."""
        run_id = request.args["run_id"]
        if not is_run_id(run_id):
            raise NoSuchRun()
        record = await self._edge.run(run_id)
        owner = owner_of(request.principal)
        if owner and record.principal != owner:
            raise NoSuchRun()
        return record


def run_request(asked: RunBody) -> run_pb2.RunRequest:
    """The message of a submitted body. Raises InvalidRequest unless it has exactly one input."""
    given = {name: value for name, value in msgspec.structs.asdict(asked.input).items() if value is not None}
    if len(given) != 1:
        raise InvalidRequest("`input` has exactly one of `prompt`, `messages` and `body`.")
    request = run_pb2.RunRequest(adapter=asked.adapter or "", target=asked.target, session_id=asked.session_id,
                                 priority=asked.priority, labels=asked.labels, limits=asked.limits.message())
    if asked.retry is not None:
        request.retry_safe = asked.retry == "safe"
    if asked.input.prompt is not None:
        request.prompt = asked.input.prompt
    elif asked.input.messages is not None:
        request.messages = json_encode(asked.input.messages)
    else:
        request.body, request.api = json_encode(asked.input.body), "chat/completions"
    return request


def idempotency_key(request: Request) -> str | None:
    key = request.header("idempotency-key")
    if key is not None:
        check_idempotency_key(key)
    return key


def since_us(text: str) -> int:
    """RFC 3339 as Unix microseconds; 0 for empty text."""
    if not text:
        return 0
    try:
        moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00").replace(" ", "+"))
    except ValueError:
        raise InvalidRequest(f"{text[:40]!r} is not a time; it looks like 2026-12-01T09:50:41Z.") from None
    if moment.tzinfo is None:
        raise InvalidRequest(f"The time {text[:40]!r} has no zone; end it with Z for UTC.")
    return max(0, round(moment.timestamp() * 1_000_000))


async def _page(cursor: Any, asked: EventsQuery) -> bytes:
    """Up to `asked.limit` events as the contract's JSON; `ended` only when the terminal one is among or before them."""
    events: list[dict[str, object]] = []
    size, ended = 0, False
    while len(events) < asked.limit and size < EVENTS_BYTES and not ended:
        taken = cursor.take(TAKE_BYTES)
        entries = await taken if isinstance(taken, Deferred) else taken
        for entry in entries:
            events.extend(batch_dicts(entry.batch))
            size += entry.size
        ended = cursor.ended
        if not entries:
            break
    whole = len(events) <= asked.limit
    events = events[:asked.limit]
    return json_encode({"events": events, "next": events[-1]["id"] if events else asked.after, "ended": ended and whole})


def _late_page(batches: list[run_pb2.EventBatch], after: EventId, limit: int) -> dict[str, object]:
    """The same for what is kept apart; there is no more where no event is told."""
    events: list[dict[str, object]] = []
    place = after
    for batch in batches:
        for seq, event in enumerate(batch_dicts(batch), batch.first_seq):
            here = EventId(batch.attempt, seq)
            if here > place and len(events) < limit:
                events.append(event)
                place = here
    return {"events": events, "next": str(place) if place != START else "", "ended": not batches}


def _told(record: RunRecord, headers: dict[str, str] | None = None) -> Response:
    return json_response({"run_id": record.run_id, "state": record.state}, 202, headers)


def owner_of(principal: Principal) -> str:
    """Whose runs the key may see; "" for all."""
    return "" if principal.may(ADMIN) else principal.name
