"""The APIs whose bodies and replies pass as they come: embeddings, rerank, audio, images. Their one reader is the backend."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from iop.edge.models.asking import RUN_HEADERS, Asking
from iop.edge.models.listing import ModelName
from iop.edge.models.passing import PassBody, PassStream
from iop.errors import InvalidRequest
from iop.forms import field_text
from iop.modelapis import EMBEDDINGS, IMAGE_EDITS, IMAGES, RERANK, SPEECH, TRANSCRIPTIONS, TRANSLATIONS
from iop.web.errors import OPENAI
from iop.web.request import Request
from iop.web.responses import JSON, Response, StreamResponse
from iop.web.route import RUN_ERRORS, Route

ANY = "*/*"


class PassedRequest(msgspec.Struct, frozen=True):
    """What IOP itself reads; the rest is the backend's to judge."""

    model: ModelName
    stream: bool | None = None


class PassedForm(msgspec.Struct, frozen=True):
    """The fields of a form that IOP itself reads; files and all else stand beside them."""

    model: ModelName
    stream: bool = False


class Passed(NamedTuple):
    """One of these APIs. `streams`: its reply is told as it comes, whether the request says so or not."""

    api: str
    summary: str
    form: bool = False
    streams: bool = False
    media: str = JSON


PASSED = (
    Passed(EMBEDDINGS, "Embed texts"),
    Passed(RERANK, "Rank documents by a query"),
    Passed(SPEECH, "Speak a text", streams=True, media=ANY),
    Passed(TRANSCRIPTIONS, "Write down what is said", form=True, media=ANY),
    Passed(TRANSLATIONS, "Write down in English what is said", form=True, media=ANY),
    Passed(IMAGES, "Make images", streams=True),
    Passed(IMAGE_EDITS, "Change images", form=True, streams=True),
)


class PassingRoutes:
    """The model APIs of which IOP knows the model's name, and no more."""

    def __init__(self, asking: Asking, body_limit: int) -> None:
        self._asking = asking
        self._body_limit = body_limit

    def routes(self) -> list[Route]:
        return [Route(
            "POST", f"/v1/{one.api}", "models", self._handler(one), one.summary, query=None, body_limit=self._body_limit,
            body=PassedForm if one.form else PassedRequest, form=one.form, media=one.media, dialect=OPENAI, answer="passed",
            errors=RUN_ERRORS, headers=RUN_HEADERS) for one in PASSED]

    def _handler(self, one: Passed) -> Callable[[Request], Awaitable[Response | StreamResponse]]:
        async def handle(request: Request) -> Response | StreamResponse:
            return await self._passed(request, one)
        return handle

    async def _passed(self, request: Request, one: Passed) -> Response | StreamResponse:
        asked, content_type = _form(request) if one.form else (request.json(PassedRequest), "")
        run = self._asking.run_request(request, asked.model, one.api, programs=False)
        run.content_type = content_type
        return await self._asking.answered(request, run, one.streams or asked.stream,
                                           lambda record: PassStream(asked.model, one.api),
                                           lambda record: PassBody(asked.model, one.api))


def _form(request: Request) -> tuple[Any, str]:
    """What is read of a form, and its content type."""
    content_type = request.header("content-type") or ""
    model = field_text(request.body, content_type, "model")
    if not model:
        raise InvalidRequest("The form has no field `model`.")
    streams = field_text(request.body, content_type, "stream") in ("true", "True", "1")
    return PassedForm(model, streams), content_type
