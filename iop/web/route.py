"""The one table of what can be asked over HTTP: dispatch, scopes, body limits and the OpenAPI document come from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import unquote

import msgspec

from iop.errors import InvalidRequest, NotFound
from iop.web.errors import MANAGEMENT, BadMethod
from iop.web.request import Request
from iop.web.responses import JSON, Response, StreamResponse

Handler = Callable[[Request], Awaitable[Response | StreamResponse]]

MIB = 1024 * 1024
PUBLIC = "public"
RUN_ERRORS = (404, 409, 429, 502, 503, 504)      # of what runs something for its client


class NoQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A route that takes no query."""


@dataclass(frozen=True, slots=True)
class Route:
    """One operation. `path` has `{name}` for one segment and, at its end, `{name...}` for the rest of the path."""

    method: str
    path: str
    scope: str                               # one of iop.keys.SCOPES, or PUBLIC
    handler: Handler
    summary: str
    body: type[msgspec.Struct] | None = None
    query: type[msgspec.Struct] | None = NoQuery     # None: any query is passed over
    body_limit: int = MIB
    dialect: str = MANAGEMENT
    success: int = 200
    answer: str = "object"                   # what the success holds, for the document
    media: str = JSON                        # of the success
    form: bool = False                       # the body is a multipart form; `body` says what is read of it
    streams: bool = False                    # it can answer as text/event-stream
    errors: tuple[int, ...] = ()             # beside those every route has
    headers: tuple[str, ...] = field(default=())   # request headers it reads


class RouteTable:
    """Routes by path. Exact paths are one look-up; patterns are tried by their number of segments, in order."""

    def __init__(self, routes: list[Route]) -> None:
        self.routes = tuple(routes)
        self._exact: dict[str, dict[str, Route]] = {}
        self._patterns: list[tuple[tuple[str, ...], dict[str, Route]]] = []
        for route in routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        if "{" not in route.path:
            methods = self._exact.setdefault(route.path, {})
        else:
            parts = tuple(route.path.split("/"))
            methods = next((known for pattern, known in self._patterns if pattern == parts), {})
            if not methods:
                self._patterns.append((parts, methods))
        if route.method in methods:
            raise ValueError(f"{route.method} {route.path} stands twice in the route table.")
        methods[route.method] = route

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """The route and the values in its path. Raises NotFound or BadMethod; a HEAD is answered as a GET."""
        methods, found = self._at(path)
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            raise BadMethod(f"{path[:200]} knows {', '.join(sorted(methods))}.", allow=sorted(methods))
        return route, found

    def _at(self, path: str) -> tuple[dict[str, Route], dict[str, str]]:
        """The routes at a path by method, and the values in the path."""
        if path in self._exact:
            return self._exact[path], {}
        segments = path.split("/")
        for pattern, methods in self._patterns:
            found = _match(pattern, segments)
            if found is not None:
                return methods, found
        raise NotFound(f"There is nothing at {path[:200]!r}.")


def _match(pattern: tuple[str, ...], segments: list[str]) -> dict[str, str] | None:
    """The values of a pattern's names in a path, decoded; None when it is another path."""
    rest = pattern[-1].endswith("...}")
    if len(segments) < len(pattern) or (len(segments) > len(pattern) and not rest):
        return None
    found = {}
    for index, part in enumerate(pattern):
        if not part.startswith("{"):
            if part != segments[index]:
                return None
        elif part.endswith("...}"):
            found[part[1:-4]] = _decoded("/".join(segments[index:]))
        else:
            found[part[1:-1]] = _decoded(segments[index])
    return found if all(found.values()) else None


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise InvalidRequest("The path is not UTF-8.") from None
