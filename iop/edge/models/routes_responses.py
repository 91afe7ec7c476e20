"""The Responses API: made, streamed, fetched again, cancelled, continued, deleted.

::

    POST /v1/responses ----------> run, stopped when its client leaves -> events, or one object
         background: true -------> run, kept going --> {"status": "queued"}, or its events
    GET  /v1/responses/resp_RUN -> the object as it is now; stream=true&starting_after=N: the rest of the same events

A response is a run: its id is `resp_` and the run's, and what it said is in the run's log (docs/adr/0019-responses.md).
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from iop.edge.models.affinity import chat_prefix
from iop.edge.models.asking import RUN_HEADERS, Asking
from iop.edge.models.reader import ModelReader, take
from iop.edge.models.response_object import ResponseObject, response_id, state_status
from iop.edge.models.response_store import ResponseStore, Stored, items_of
from iop.edge.models.responses import ResponseBody, ResponseStream
from iop.edge.routes_runs import idempotency_key
from iop.errors import Conflict, InvalidRequest
from iop.events import json_encode
from iop.interfaces import IEdgeService, IRunCursor
from iop.modelapis import RESPONSES
from iop.proto import run_pb2
from iop.records import RunRecord
from iop.runs import START
from iop.web import strictjson
from iop.web.errors import OPENAI
from iop.web.request import Request
from iop.web.responses import Response, StreamResponse, json_response
from iop.web.route import RUN_ERRORS, Route

LISTED = 20                  # input items on a page, and
LISTED_MAX = 100             # at most (OpenAI's numbers)


class ResponseRequest(msgspec.Struct, frozen=True):
    """What IOP itself reads of a body; fields it does not know travel to the backend."""

    model: str
    input: str | list[Any] | None = None
    instructions: Any = None
    stream: bool | None = None
    background: bool | None = None
    store: bool | None = None
    previous_response_id: str | None = None
    prompt_cache_key: Any = None


class RetrieveQuery(msgspec.Struct, frozen=True):
    stream: bool = False
    starting_after: Annotated[int, Meta(ge=0)] | None = None


class ItemsQuery(msgspec.Struct, frozen=True):
    limit: int = LISTED
    order: str = "desc"
    after: str = ""


class ResponseRoutes:
    """The Responses API in OpenAI's dialect."""

    def __init__(self, edge: IEdgeService, asking: Asking, body_limit: int) -> None:
        self._edge = edge
        self._asking = asking
        self._store = ResponseStore(edge)
        self._body_limit = body_limit

    def routes(self) -> list[Route]:
        one = "/v1/responses/{response_id}"
        shared: dict[str, Any] = {"dialect": OPENAI, "errors": (404, 409, 503)}
        return [
            Route("POST", "/v1/responses", "models", self.create, "A response, streaming or not, waited for or not",
                  body=ResponseRequest, query=None, body_limit=self._body_limit, streams=True,
                  headers=RUN_HEADERS, **shared | {"errors": RUN_ERRORS}),
            Route("GET", one, "models", self.retrieve, "Show a response, or stream it again", query=RetrieveQuery,
                  streams=True, **shared),
            Route("DELETE", one, "models", self.delete, "Have a response forgotten; its run stays in the record", **shared),
            Route("POST", one + "/cancel", "models", self.cancel, "Ask for the end of a response; idempotent", query=None,
                  **shared),
            Route("GET", one + "/input_items", "models", self.input_items, "List what a response was asked",
                  query=ItemsQuery, **shared),
        ]

    async def create(self, request: Request) -> Response | StreamResponse:
        body = strictjson.loads(request.body)
        asked = strictjson.convert(body, ResponseRequest)
        if asked.background and asked.store is False:
            raise InvalidRequest("`background` needs `store`: the answer is fetched later.")
        run = await self._run_request(request, asked, body)
        if asked.background:
            return await self._background(request, run, asked, body)
        return await self._asking.answered(
            request, run, asked.stream, lambda record: ResponseStream(record, body, asked.model),
            lambda record: ResponseBody(record, body, asked.model))

    async def _run_request(self, request: Request, asked: ResponseRequest, body: dict[str, Any]) -> run_pb2.RunRequest:
        """The run. Its body always asks for a stream, so that a client that leaves is noticed, and the answer can be
        streamed later; with a previous response, its input is the whole conversation."""
        given: Any = asked.input
        if asked.previous_response_id is not None:
            given = await self._store.continued(asked.previous_response_id, request.principal.name, given)
        run = self._asking.run_request(request, asked.model, RESPONSES, cache_key=asked.prompt_cache_key,
                                       prefix=_prefix(asked.instructions, given))
        if given is not asked.input or not asked.stream:
            fields: dict[str, Any] = msgspec.json.decode(request.body, type=dict[str, msgspec.Raw])
            fields["stream"] = True
            if given is not asked.input:
                fields["input"] = given
            run.body = json_encode(fields)
        return run

    async def _background(self, request: Request, run: run_pb2.RunRequest, asked: ResponseRequest,
                          body: dict[str, Any]) -> Response | StreamResponse:
        """A run that is for nobody: it goes on without its client, to its own limits."""
        record = await self._edge.submit(run, request.source, idempotency_key(request))
        if asked.stream:
            return await self._stream_of(record, ResponseStream(record, body, asked.model))
        return await self._shown(Stored(record))         # by its Idempotency-Key it may be an earlier one, and ended

    async def retrieve(self, request: Request) -> Response | StreamResponse:
        query = request.query(RetrieveQuery)
        stored = await self._stored(request)
        if query.stream:
            after = -1 if query.starting_after is None else query.starting_after
            teller = ResponseStream(stored.record, stored.asked, stored.model, after)
            return await self._stream_of(stored.record, teller, after)
        return await self._shown(stored)

    async def _stream_of(self, record: RunRecord, teller: ResponseStream, after: int = -1) -> StreamResponse:
        """The events of a run from its log; leaving them stops nothing. Raises Conflict where they are not those any more
        that were numbered before."""
        cursor: IRunCursor = await self._edge.cursor(record.run_id, START)
        whole = False
        try:
            first = await _passed_over(cursor, teller, after)
            whole = not teller.has_gap
        finally:
            if not whole:
                cursor.close()
        if teller.has_gap:
            raise Conflict("The history has lost a part of this response: its events cannot be told again.",
                           hint="Fetch it without `stream`.")
        return StreamResponse(ModelReader(cursor, teller, first, cursor.close), 200, teller.media_type, _headers(record))

    async def _shown(self, stored: Stored) -> Response:
        """The object as it is now: what it said is told once it has ended."""
        record = stored.record
        if not record.ended:
            body = ResponseObject(record, stored.asked, stored.model).as_json(state_status(record), [])
            return _object(record, bytes(body))
        return _object(record, (await self._store.read(stored)).body())

    async def cancel(self, request: Request) -> Response:
        """What is told is the state behind the request: a backend may still be stopping."""
        stored = await self._stored(request, kept=False)
        stored.record = await self._edge.cancel(stored.record.run_id, request.source, "cancelled by its client")
        return await self._shown(stored)

    async def delete(self, request: Request) -> Response:
        stored = await self._stored(request)
        await self._edge.forget(stored.record.run_id, request.source)
        return json_response({"id": response_id(stored.record.run_id), "object": "response", "deleted": True})

    async def input_items(self, request: Request) -> Response:
        query = request.query(ItemsQuery)
        if not 1 <= query.limit <= LISTED_MAX or query.order not in ("asc", "desc"):
            raise InvalidRequest(f"`limit` is a number from 1 to {LISTED_MAX}, `order` is asc or desc.")
        stored = await self._stored(request)
        items = [_with_id(item, f"in_{stored.record.run_id}_{place}")
                 for place, item in enumerate(items_of(stored.asked.get("input"))) if isinstance(item, dict)]
        return json_response(_listed(items if query.order == "asc" else items[::-1], query))

    async def _stored(self, request: Request, *, kept: bool = True) -> Stored:
        return await self._store.find(request.args["response_id"], request.principal.name, kept=kept)


async def _passed_over(cursor: IRunCursor, teller: ResponseStream, after: int) -> list[bytes]:
    """Read what the client has seen already; what is left to tell of the last entries that were read for it."""
    told: list[bytes] = []
    while not (cursor.ended or teller.has_gap or told) and teller.next_number <= after:
        entries = await take(cursor)
        told = [piece for entry in entries if (piece := teller.write(entry))]
        if not entries:
            break
    return [*told, teller.end()] if cursor.ended and not teller.has_gap else told


def _prefix(instructions: Any, given: Any) -> list[Any]:
    """The beginning of the prompt, which runs of one conversation share."""
    return [*([instructions] if instructions else []), *chat_prefix(items_of(given))]


def _object(record: RunRecord, body: bytes) -> Response:
    return Response(200, body, headers=_headers(record))


def _headers(record: RunRecord) -> dict[str, str]:
    return {"x-iop-run-id": record.run_id} | ({"x-iop-node": record.node_id} if record.node_id else {})


def _with_id(item: dict[str, Any], name: str) -> dict[str, Any]:
    return {"id": name, "type": "message"} | item


def _listed(items: list[dict[str, Any]], query: ItemsQuery) -> dict[str, Any]:
    names = [item["id"] for item in items]
    start = names.index(query.after) + 1 if query.after in names else 0
    page = items[start:start + query.limit]
    return {"object": "list", "data": page, "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None, "has_more": start + query.limit < len(items)}
