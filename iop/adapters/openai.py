"""Any OpenAI-compatible server: llama.cpp's, vLLM, SGLang, LM Studio, a gateway. Bodies and chunks travel whole."""

from __future__ import annotations

from typing import ClassVar

from twisted.internet.defer import Deferred
from twisted.plugin import IPlugin
from zope.interface import implementer

from iop.adapters import settings as checks
from iop.adapters.wire.chat import ApiRequest, StreamReader, WholeReader, request_of
from iop.adapters.wire.model_adapter import Asked, ModelAdapter, ModelFactory, ModelSettings, read_model_settings
from iop.adapters.wire.model_run import Reader
from iop.adapters.wire.whole import JoiningReader
from iop.errors import ConfigError
from iop.files import read_secret
from iop.interfaces import IAdapterFactory, IAdapterTools
from iop.keys import Secret
from iop.proto.node_pb2 import TargetConfig
from iop.proto.run_pb2 import RunRequest


class OpenAISettings(ModelSettings):
    """A model at an OpenAI-compatible server."""

    api_key_file: str = ""
    headers: dict[str, str] = {}
    health_path: str = "/models"


class OpenAIAdapter(ModelAdapter):
    """The targets of one node at OpenAI-compatible backends."""

    def __init__(self, targets: dict[str, OpenAISettings], tools: IAdapterTools) -> None:
        super().__init__(targets, tools)
        self._keys = {path: Secret(read_secret(path))
                      for path in {settings.api_key_file for settings in targets.values()} if path}

    def _request(self, request: RunRequest, settings: OpenAISettings) -> Asked:
        wanted = request_of(request, settings.model)
        return Asked(wanted.path, wanted.body, _readers(wanted), self._headers(settings), wanted.plain)

    def _check(self, settings: OpenAISettings) -> Deferred[str]:
        found = self._client(settings).fetch(self._health_url(settings), self._headers(settings), within_s=4.5)
        return found.addCallbacks(
            lambda reply: "" if reply[0] == 200 else f"The backend at {settings.url} answers {reply[0]} to a health check.",
            lambda failure: failure.getErrorMessage())

    def _health_url(self, settings: OpenAISettings) -> str:
        return settings.url + settings.health_path

    def _headers(self, settings: OpenAISettings) -> dict[str, str]:
        if not settings.api_key_file:
            return settings.headers
        return settings.headers | {"Authorization": f"Bearer {self._keys[settings.api_key_file].reveal()}"}


def _readers(wanted: ApiRequest) -> tuple[Reader, ...]:
    if wanted.streams:
        return (StreamReader(),)
    return (JoiningReader(), WholeReader()) if wanted.plain else (WholeReader(),)


@implementer(IPlugin, IAdapterFactory)
class OpenAIFactory(ModelFactory):
    """`openai`: see the module."""

    name: ClassVar[str] = "openai"
    kind: ClassVar[type[OpenAISettings]] = OpenAISettings
    adapter: ClassVar[type[OpenAIAdapter]] = OpenAIAdapter

    def settings(self, target: TargetConfig) -> OpenAISettings:
        settings = read_model_settings(target, self.kind)
        checks.check_headers(settings.headers)
        checks.check_path("health_path", settings.health_path)
        if settings.api_key_file and not settings.api_key_file.startswith("/"):
            raise ConfigError("api_key_file must be an absolute path, of a file on the node's machine with mode 0600.")
        return settings


factory = OpenAIFactory()
