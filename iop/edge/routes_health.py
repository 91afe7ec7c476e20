"""Whether the edge lives, whether it is ready, and its figures."""

from __future__ import annotations

from iop.interfaces import IEdgeService
from iop.metrics import CONTENT_TYPE, Metrics
from iop.web.request import Request
from iop.web.responses import Response, json_response
from iop.web.route import PUBLIC, Route


class HealthRoutes:
    """For supervisors and Prometheus. Alive is not ready: an edge that cannot write its history lives, and says so."""

    def __init__(self, edge: IEdgeService, metrics: Metrics) -> None:
        self._edge = edge
        self._metrics = metrics

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/healthz", PUBLIC, self.alive, "Alive, with the reactor's lag", query=None, answer="health"),
            Route("GET", "/readyz", PUBLIC, self.ready, "Ready for work, or the reasons why not", query=None, answer="health",
                  errors=(503,)),
            Route("GET", "/metrics", "metrics:read", self.metrics, "Figures for Prometheus", query=None, answer="text",
                  media="text/plain"),
        ]

    async def alive(self, request: Request) -> Response:
        return json_response({"status": "alive", "edge_id": self._edge.edge_id, **self._edge.health()})

    async def ready(self, request: Request) -> Response:
        health = self._edge.health()
        return json_response({"ready": health["ready"], "reasons": health["reasons"]}, 200 if health["ready"] else 503)

    async def metrics(self, request: Request) -> Response:
        return Response(200, await self._metrics.render(), CONTENT_TYPE)
