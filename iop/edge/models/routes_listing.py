"""`/v1/models`, to OpenAI's clients and to Anthropic's."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from iop.edge.models.listing import model_json, models_json
from iop.errors import NoSuchTarget
from iop.interfaces import IEdgeService
from iop.records import ModelEntry
from iop.web.errors import ANTHROPIC, OPENAI
from iop.web.request import Request
from iop.web.responses import Response, json_response
from iop.web.route import Route

Id = Annotated[str, Meta(max_length=300)]


class ModelsQuery(msgspec.Struct, frozen=True):
    """Any other name in the query is passed over. `after_id` and `before_id` are of Anthropic's API."""

    limit: Annotated[int, Meta(ge=1, le=1000)] | None = None
    after_id: Id = ""
    before_id: Id = ""


class ListingRoutes:
    """The list of models, and each of them."""

    def __init__(self, edge: IEdgeService) -> None:
        self._edge = edge

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/v1/models", "models", self.models, "List the models", query=ModelsQuery, dialect=OPENAI,
                  answer="models_of_apis", headers=("anthropic-version",)),
            Route("GET", "/v1/models/{model...}", "models", self.model, "Show a model", query=None, dialect=OPENAI,
                  answer="model_of_apis", errors=(404,), headers=("anthropic-version",)),
        ]

    async def models(self, request: Request) -> Response:
        _choose_dialect(request)
        asked = request.query(ModelsQuery)
        return json_response(models_json(usable(self._edge, request), asked.limit, asked.after_id, asked.before_id))

    async def model(self, request: Request) -> Response:
        _choose_dialect(request)
        return json_response(model_json(find(self._edge, request, request.args["model"])))


def usable(edge: IEdgeService, request: Request) -> list[ModelEntry]:
    """The models that the request's key may use."""
    return [entry for entry in edge.models() if edge.permits(request.principal.name, entry.name)]


def find(edge: IEdgeService, request: Request, name: str) -> ModelEntry:
    """The entry of a model under the name that was asked for, which may be adapter/target too. Raises NoSuchTarget, also for
    one that the request's key may not use."""
    if not edge.permits(request.principal.name, name):
        raise NoSuchTarget(f"There is no model {name[:100]!r} for this key.")
    known = edge.models()
    for entry in known:
        if entry.name == name:
            return entry
    adapter, target, _ = edge.resolve(name)
    entry = next((one for one in known if (one.adapter, one.target) == (adapter, target)), None)
    if entry is None:
        return ModelEntry(name=name, adapter=adapter, target=target, created_us=0, ready=True)
    return msgspec.structs.replace(entry, name=name)


def _choose_dialect(request: Request) -> None:
    """Anthropic's clients are told of errors in their own."""
    if request.header("anthropic-version") is not None:
        request.dialect = ANTHROPIC
