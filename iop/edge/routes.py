"""All HTTP faces of an edge on one site."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from iop._version import __version__
from iop.config import HttpListen
from iop.edge.models.asking import Asking
from iop.edge.models.routes_listing import ListingRoutes
from iop.edge.models.routes_messages import MessagesRoutes
from iop.edge.models.routes_ollama import OllamaRoutes
from iop.edge.models.routes_openai import OpenAIRoutes
from iop.edge.models.routes_passing import PassingRoutes
from iop.edge.models.routes_responses import ResponseRoutes
from iop.edge.openapi import document
from iop.edge.routes_health import HealthRoutes
from iop.edge.routes_nodes import NodeRoutes
from iop.edge.routes_runs import RunRoutes
from iop.edge.routes_usage import UsageRoutes
from iop.interfaces import IEdgeService
from iop.keys import KeyRing
from iop.metrics import Metrics
from iop.web.admission import Admission
from iop.web.cors import Cors, preflights
from iop.web.request import Request
from iop.web.responses import Response, encode
from iop.web.route import PUBLIC, Route, RouteTable
from iop.web.site import Site


def make_table(edge: IEdgeService, config: HttpListen, metrics: Metrics, clock: IReactorTime) -> RouteTable:
    """Every route of an edge; the document of them is one of them."""
    described: list[bytes] = []

    async def openapi(request: Request) -> Response:
        return Response(200, described[0])

    asking = Asking(edge, clock)
    routes = [
        *RunRoutes(edge, config.body_bytes).routes(), *NodeRoutes(edge).routes(), *UsageRoutes(edge).routes(),
        *OpenAIRoutes(asking, config.body_bytes, config.heartbeat).routes(),
        *MessagesRoutes(asking, config.body_bytes).routes(),
        *ResponseRoutes(edge, asking, config.body_bytes).routes(),
        *PassingRoutes(asking, config.body_bytes).routes(), *ListingRoutes(edge).routes(),
        *OllamaRoutes(edge, asking, config.body_bytes).routes(),
        *HealthRoutes(edge, metrics).routes(),
        Route("GET", "/api/v1/openapi.json", PUBLIC, openapi, "This document", answer="object"),
    ]
    if config.cors_origins:
        routes += preflights(routes)
    described.append(encode(document(routes, __version__.public())))
    return RouteTable(routes)


def make_site(edge: IEdgeService, keyring_of: Callable[[], KeyRing], config: HttpListen, metrics: Metrics,
              clock: IReactorTime) -> Site:
    """The factory to listen with. `keyring_of` is asked at each request, so that a reload of the keys counts at once."""
    table = make_table(edge, config, metrics, clock)
    names = [*config.names, *([] if config.host in ("0.0.0.0", "::", "") else [config.host])]  # noqa: S104
    return Site(Admission(table, keyring_of, names, Cors(config.cors_origins)), clock, metrics)
