"""The management API of nodes, models and lifecycle events."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from iop.edge.bus import MAX_LIFE_ID
from iop.edge.readers import LifeReader
from iop.edge.streams import ToldError
from iop.errors import InvalidRequest
from iop.events import life_dict, rfc3339
from iop.interfaces import IEdgeService
from iop.web.request import Request
from iop.web.responses import Response, StreamResponse, json_response
from iop.web.route import Route

Label = Annotated[str, Meta(min_length=1, max_length=128)]
LifeId = Annotated[int, Meta(ge=0, le=MAX_LIFE_ID)]


class _Body(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    pass


class NodePatch(_Body):
    """A label with the value null is removed."""

    labels: dict[Label, Annotated[str, Meta(max_length=256)] | None] = {}
    drain: bool | None = None


class CommandBody(_Body):
    line: Annotated[str, Meta(min_length=1, max_length=65536)]
    timeout_s: Annotated[float, Meta(gt=0, le=600)] = 30.0


class LifeQuery(_Body):
    after: LifeId | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class NodeRoutes:
    """Nodes and what they offer, and what happened to them."""

    def __init__(self, edge: IEdgeService) -> None:
        self._edge = edge

    def routes(self) -> list[Route]:
        node = "/api/v1/nodes/{node_id}"
        return [
            Route("GET", "/api/v1/nodes", "nodes:read", self.list, "List nodes", answer="nodes"),
            Route("GET", node, "nodes:read", self.show, "Show a node", answer="node", errors=(404,)),
            Route("PATCH", node, "nodes:write", self.change, "Set labels, drain or take back", body=NodePatch, answer="node",
                  errors=(404, 503)),
            Route("POST", node + "/commands", "nodes:write", self.command, "Have a node carry out a command",
                  body=CommandBody, answer="result", errors=(404, 409, 502, 503, 504)),
            Route("GET", "/api/v1/models", "models", self.models, "List what can be run, by its names", answer="models"),
            Route("GET", "/api/v1/events", "events:read", self.events,
                  "Lifecycle events: the latest, those behind an id, or a stream of them", query=LifeQuery, answer="life",
                  streams=True, errors=(503,), headers=("Last-Event-ID",)),
        ]

    async def list(self, request: Request) -> Response:
        return json_response({"nodes": [view.as_dict() for view in self._edge.nodes()]})

    async def show(self, request: Request) -> Response:
        return json_response(self._edge.node(request.args["node_id"]).as_dict())

    async def change(self, request: Request) -> Response:
        asked, node_id = request.json(NodePatch), request.args["node_id"]
        view = self._edge.node(node_id)
        if asked.labels:
            view = await self._edge.label(node_id, asked.labels, request.source)
        if asked.drain is not None:
            view = await self._edge.drain(node_id, asked.drain, request.source)
        return json_response(view.as_dict())

    async def command(self, request: Request) -> Response:
        asked = request.json(CommandBody)
        answer = await self._edge.command(request.args["node_id"], asked.line, request.source, asked.timeout_s)
        if not answer.ok:
            raise ToldError(answer.code or "adapter_error", answer.message or "The node refused the command.")
        return json_response({"ok": True, "result": msgspec.json.decode(answer.result) if answer.result else None})

    async def models(self, request: Request) -> Response:
        return json_response({"models": [
            {"name": entry.name, "adapter": entry.adapter, "target": entry.target, "ready": entry.ready,
             "created_at": rfc3339(entry.created_us)} for entry in self._edge.models()]})

    async def events(self, request: Request) -> Response | StreamResponse:
        asked = request.query(LifeQuery)
        if request.wants_stream:
            return StreamResponse(LifeReader(self._edge, _last_seen(request, asked.after)))
        found = await self._edge.events(asked.after, asked.limit)
        following = found[-1].event_id if found else asked.after
        return json_response({"events": [life_dict(event) for event in found], "next": following})


def _last_seen(request: Request, after: int | None) -> int | None:
    """Where a stream begins; the header wins over the address, which a reader that comes back repeats."""
    text = request.header("last-event-id")
    if not text:
        return after
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= MAX_LIFE_ID):
        raise InvalidRequest(f"{text[:40]!r} is not the id of a lifecycle event; it is a number.")
    return int(text)
