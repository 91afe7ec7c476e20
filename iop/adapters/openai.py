"""Any OpenAI-compatible server: llama.cpp's, vLLM, SGLang, LM Studio, a gateway. Bodies and replies travel whole.

An API that the backend does not have is told in one that it has, where that can be done (docs/adr/0018, 0024).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import msgspec
from twisted.internet.defer import Deferred
from twisted.plugin import IPlugin
from zope.interface import implementer

from iop.adapters import settings as checks
from iop.adapters.wire.answers import Answers, joins
from iop.adapters.wire.asked import Asked
from iop.adapters.wire.ceiling import lacks_room, without_ceiling
from iop.adapters.wire.context import context_tokens
from iop.adapters.wire.lacking import Lacking
from iop.adapters.wire.model_adapter import ModelAdapter, ModelFactory
from iop.adapters.wire.model_settings import ModelSettings, read_model_settings
from iop.adapters.wire.passed_headers import passed_headers
from iop.adapters.wire.readers import readers_of
from iop.adapters.wire.refusals import lacks_api, refuses_to_stream
from iop.adapters.wire.requests import (
    APIS,
    TYPED,
    ApiRequest,
    decoded,
    passed_on,
    passed_query,
    request_of,
)
from iop.adapters.wire.translated import Translated
from iop.adapters.wire.translators import can_be_translated, needs_translation, translated
from iop.errors import ConfigError, UpstreamError
from iop.files import read_secret
from iop.interfaces import IAdapterFactory, IAdapterTools
from iop.keys import Secret
from iop.modelapis import OLLAMA
from iop.proto.node_pb2 import TargetConfig
from iop.proto.run_pb2 import RunRequest
from iop.servers import TargetHealth, check_health_path

ANTHROPIC_VERSION = "2023-06-01"     # what a client means that names none


class OpenAISettings(ModelSettings):
    """A model at an OpenAI-compatible server. `apis`: what it has; empty: found out by asking. `answers`: how one in one
    piece is asked for (wire/answers.py); `whole_s`: how long a plain one may take until its head, which is till its end.
    """

    api_key_file: str = ""
    headers: dict[str, str] = {}
    health_path: str = "/models"
    apis: tuple[str, ...] = ()
    answers: Answers = "auto"
    whole_s: float = 600.0


class OpenAIAdapter(ModelAdapter):
    """The targets of one node at OpenAI-compatible backends."""

    def __init__(self, targets: dict[str, OpenAISettings], tools: IAdapterTools) -> None:
        super().__init__(targets, tools)
        self._lacking = Lacking(tools.clock)
        self._contexts: dict[tuple[str, str], int] = {}      # by URL and model; of an owned server the URL changes
        self._keys = {path: Secret(read_secret(path))
                      for path in {settings.api_key_file for settings in targets.values()} if path}

    def _request(self, request: RunRequest, settings: OpenAISettings) -> Asked:
        api = request.api if request.WhichOneof("input") == "body" else ""
        if api and self._lacks(request, settings):
            if not can_be_translated(api):
                raise UpstreamError(f"The backend of {request.target} has no API {api[:80]}.", status=404)
            return self._told_otherwise(request, settings)
        typed = api in TYPED or api.startswith("messages/")
        joined = self._joins(settings)
        asked = self._asked(request_of(request, settings.model, joined), settings, joined,
                            _typed_headers(request) if typed else {}, passed_query(request) if typed else "")
        if can_be_translated(api):
            asked = asked._replace(otherwise=partial(self._refused, request, settings, asked))
        return asked

    def _lacks(self, request: RunRequest, settings: OpenAISettings) -> bool:
        if request.api in OLLAMA:
            return True
        if settings.apis:
            return request.api in APIS and request.api not in settings.apis
        return self._lacking.lacks(request.target, request.api) or needs_translation(request.api, request.body)

    def _asked(self, wanted: ApiRequest, settings: OpenAISettings, joined: bool, headers: dict[str, str],
               query: str = "") -> Asked:
        if wanted.plain and not joined:
            return Asked(wanted.api + query, wanted.plain, readers_of(wanted, False), headers | self._headers(settings),
                         wanted.content_type, whole_s=settings.whole_s)
        asked = Asked(wanted.api + query, wanted.body, readers_of(wanted), headers | self._headers(settings),
                      wanted.content_type)
        if not wanted.plain:
            return asked
        plain = asked._replace(body=wanted.plain)

        def plainly(status: int, body: bytes) -> Asked | None:
            return plain if refuses_to_stream(status, body) else None

        return asked._replace(otherwise=plainly)

    def _joins(self, settings: OpenAISettings) -> bool:
        return joins(settings.answers, self._client(settings).server(settings.url))

    def _refused(self, request: RunRequest, settings: OpenAISettings, first: Asked, status: int, body: bytes) -> Asked | None:
        """What is asked after a refusal of an API that can be told in another; the lack is remembered once that works."""
        if not lacks_api(status):
            return first.otherwise(status, body)
        return self._told_otherwise(request, settings, partial(self._lacking.found, request.target, request.api))

    def _told_otherwise(self, request: RunRequest, settings: OpenAISettings,
                        answered: Callable[[], None] | None = None) -> Asked:
        told = translated(request.api, decoded(request.body), settings.model)
        asked, unlimited = self._told(told, settings, answered), without_ceiling(told)
        if unlimited is None:
            return asked

        def otherwise(status: int, body: bytes) -> Asked | None:
            if lacks_room(status, body):
                return self._told(unlimited, settings, answered)
            return asked.otherwise(status, body)

        return asked._replace(otherwise=otherwise)

    def _told(self, told: Translated, settings: OpenAISettings, answered: Callable[[], None] | None) -> Asked:
        joined = self._joins(settings)
        wanted = passed_on(told.api, msgspec.json.encode(told.body), settings.model, joined=joined)
        asked = self._asked(wanted, settings, joined, {})
        return asked._replace(api=told.api, warnings=told.warnings, answered=answered or asked.answered)

    def _check(self, settings: OpenAISettings) -> Deferred[TargetHealth]:
        found = self._client(settings).fetch(self._health_url(settings), self._headers(settings), within_s=2.4)
        found.addCallbacks(self._answered, lambda failure: TargetHealth(failure.getErrorMessage()), callbackArgs=(settings,))
        return found

    def _answered(self, reply: tuple[int, bytes], settings: OpenAISettings) -> TargetHealth | Deferred[TargetHealth]:
        status, body = reply
        if status != 200:
            return TargetHealth(f"The backend at {settings.url} answers {status} to a health check.")
        if settings.health_path == "/models":
            return self._listed(body, settings)
        if (settings.url, settings.model) in self._contexts:
            return self._listed(b"", settings)
        asked = self._client(settings).fetch(settings.url + "/models", self._headers(settings), within_s=1.6)
        return asked.addCallbacks(lambda reply: self._listed(reply[1], settings), lambda failure: TargetHealth(warm=True))

    def _listed(self, models: bytes, settings: OpenAISettings) -> TargetHealth:
        """It is ready; its list of models may tell the context, and is asked for once where that is a request of its own."""
        here = settings.url, settings.model
        self._contexts[here] = context_tokens(models, settings.model) or self._contexts.get(here, 0)
        return TargetHealth(warm=True, context_tokens=self._contexts[here])

    def _health_url(self, settings: OpenAISettings) -> str:
        return settings.url + settings.health_path

    def _headers(self, settings: OpenAISettings) -> dict[str, str]:
        if not settings.api_key_file:
            return settings.headers
        return settings.headers | {"Authorization": f"Bearer {self._keys[settings.api_key_file].reveal()}"}


def _typed_headers(request: RunRequest) -> dict[str, str]:
    """The client's own headers, which the APIs whose clients send such leave to the backend."""
    headers = passed_headers(request)
    if request.api.startswith("messages"):
        headers.setdefault("anthropic-version", ANTHROPIC_VERSION)
    return headers


@implementer(IPlugin, IAdapterFactory)
class OpenAIFactory(ModelFactory):
    """`openai`: see the module."""

    name: ClassVar[str] = "openai"
    kind: ClassVar[type[OpenAISettings]] = OpenAISettings
    adapter: ClassVar[type[OpenAIAdapter]] = OpenAIAdapter

    def settings(self, target: TargetConfig) -> OpenAISettings:
        settings = read_model_settings(target, self.kind)
        checks.check_headers(settings.headers)
        check_health_path("health_path", settings.health_path)
        checks.check_seconds(whole_s=settings.whole_s)
        if settings.api_key_file and not settings.api_key_file.startswith("/"):
            raise ConfigError("api_key_file must be an absolute path, of a file on the node's machine with mode 0600.")
        unknown = sorted(set(settings.apis) - APIS)
        if unknown:
            raise ConfigError(f"apis: {unknown[0][:80]!r} is no API; allowed are {', '.join(sorted(APIS))}.")
        return settings


factory = OpenAIFactory()
