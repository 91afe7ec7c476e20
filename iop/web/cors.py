"""Which web pages may ask the model APIs from a browser (the Fetch standard's CORS protocol). Pure.

Off unless origins are configured: a browser then keeps every answer from every foreign page. Only the model APIs are opened,
never the management API; there are no cookies, so that a page has only the key that its user gave it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from iop.headers import Headers
from iop.web.errors import MANAGEMENT
from iop.web.request import Request, dialect_of
from iop.web.responses import Response
from iop.web.route import PUBLIC, Route

EXPOSED = ("x-request-id", "x-iop-run-id", "x-iop-node", "x-iop-queue-ms", "x-iop-overhead-ms", "x-iop-placement",
           "x-iop-warning", "retry-after", "retry-after-ms", "x-should-retry")
KEPT_S = 600                     # how long a browser may remember a preflight's answer

_NAMES = re.compile(r"[A-Za-z0-9-]+(?:, ?[A-Za-z0-9-]+)*")


class Cors:
    """The origins that may ask."""

    def __init__(self, origins: Iterable[str] = ()) -> None:
        self._origins = frozenset(origins)

    def __bool__(self) -> bool:
        return bool(self._origins)

    def headers(self, asked: Headers, path: str) -> dict[str, str]:
        """What an answer at `path` says to the page that asked, refusals included; nothing without origins."""
        if not self._origins or dialect_of(path) == MANAGEMENT:
            return {}
        origin = (asked.getRawHeaders(b"origin") or [b""])[-1].decode("latin-1")
        if origin not in self._origins:
            return {"Vary": "Origin"}
        return {"Vary": "Origin", "Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": ", ".join(EXPOSED)}


def preflights(routes: Iterable[Route]) -> list[Route]:
    """An OPTIONS for each path of the model APIs; who may ask is told by Cors.headers."""
    methods: dict[str, list[str]] = {}
    dialects: dict[str, str] = {}
    for route in routes:
        if route.dialect != MANAGEMENT:
            methods.setdefault(route.path, []).append(route.method)
            dialects[route.path] = route.dialect
    return [_preflight(path, known, dialects[path]) for path, known in methods.items()]


def _preflight(path: str, methods: list[str], dialect: str) -> Route:
    async def allow(request: Request) -> Response:
        told = {"Access-Control-Allow-Methods": ", ".join(methods), "Access-Control-Max-Age": str(KEPT_S)}
        wanted = request.header("access-control-request-headers") or ""
        if _NAMES.fullmatch(wanted):
            told["Access-Control-Allow-Headers"] = wanted
        return Response(204, headers=told)
    return Route("OPTIONS", path, PUBLIC, allow, "What a page may send", query=None, dialect=dialect, success=204,
                 answer="nothing", headers=("Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers"))
