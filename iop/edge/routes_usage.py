"""What was used, by key, model and node (docs/models.md); out of the history, so that a restart forgets nothing."""

from __future__ import annotations

import msgspec

from iop.edge.routes_runs import Text, owner_of, since_us
from iop.errors import InvalidRequest
from iop.interfaces import IEdgeService
from iop.records import GROUPINGS, UsageQuery
from iop.web.request import Request
from iop.web.responses import Response, json_response
from iop.web.route import Route

TOTAL = "total"


class UsageAsked(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`by`: some of key, model and node, with commas between them, or total; runs count that were created in that time."""

    by: Text = "key"
    since: Text = ""
    until: Text = ""


class UsageRoutes:
    """One reading. A key without `admin` sees only what it used itself."""

    def __init__(self, edge: IEdgeService) -> None:
        self._edge = edge

    def routes(self) -> list[Route]:
        return [Route("GET", "/api/v1/usage", "runs:read", self.usage, "Runs and tokens by key, model and node",
                      query=UsageAsked, answer="usage", errors=(503,))]

    async def usage(self, request: Request) -> Response:
        asked = request.query(UsageAsked)
        by = groupings(asked.by)
        rows = await self._edge.usage(UsageQuery(by=by, since_us=since_us(asked.since), until_us=since_us(asked.until),
                                                 principal=owner_of(request.principal)))
        return json_response({"usage": [row.as_dict(by) for row in rows]})


def groupings(text: str) -> tuple[str, ...]:
    """Each once; none for `total`. Raises InvalidRequest."""
    if text == TOTAL:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if any(name not in GROUPINGS for name in names):
        raise InvalidRequest(f"`by` is made of {', '.join(GROUPINGS)}, with commas between them, or is {TOTAL}.")
    return names
