"""Any OpenAI-compatible server: llama.cpp's, vLLM, SGLang, LM Studio, a gateway. Bodies and chunks travel whole."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from twisted.internet.defer import Deferred, gatherResults
from twisted.plugin import IPlugin
from zope.interface import implementer

from iop.adapters import settings as checks
from iop.adapters.executions import Execution, refused
from iop.adapters.settings import Settings
from iop.adapters.wire.chat import StreamReader, WholeReader, request_of
from iop.adapters.wire.client import HttpClient
from iop.adapters.wire.exchange import Exchange, Receiver
from iop.adapters.wire.model_run import ModelRun
from iop.errors import ConfigError, IOPError
from iop.files import read_secret
from iop.interfaces import IAdapter, IAdapterFactory, IAdapterTools, IHealth, IRunSink
from iop.keys import Secret
from iop.proto.node_pb2 import TargetConfig
from iop.requirements import Upstream
from iop.runs import ExecutionSpec


class OpenAISettings(Settings):
    """`model` is the backend's own name for it; empty is the target's name. Paths are below `url`'s host."""

    url: str
    model: str = ""
    api_key_file: str = ""
    headers: dict[str, str] = {}
    connect_s: float = 5.0
    first_byte_s: float = 60.0       # from the request to the first byte of the reply's body; longer for cold models
    idle_s: float = 60.0             # between two reads of a reply
    health_path: str = "/models"


def checked(settings: OpenAISettings, target: TargetConfig) -> OpenAISettings:
    """With its defaults filled in. Raises ConfigError."""
    checks.check_headers(settings.headers)
    checks.check_seconds(connect_s=settings.connect_s, first_byte_s=settings.first_byte_s, idle_s=settings.idle_s)
    checks.check_path("health_path", settings.health_path)
    if settings.api_key_file and not settings.api_key_file.startswith("/"):
        raise ConfigError("api_key_file must be an absolute path, of a file on the node's machine with mode 0600.")
    return msgspec.structs.replace(settings, url=checks.checked_url("url", settings.url),
                                   model=settings.model or target.name)


@implementer(IAdapter, IHealth)
class OpenAIAdapter:
    """The targets of one node at OpenAI-compatible backends."""

    def __init__(self, targets: dict[str, OpenAISettings], tools: IAdapterTools) -> None:
        self._targets = targets
        self._tools = tools
        # A client per connect limit: nearly always one for all.
        self._clients = {limit: HttpClient(tools.reactor, tools.clock, connect_s=limit)
                         for limit in {settings.connect_s for settings in targets.values()}}
        self._keys = {path: Secret(read_secret(path))
                      for path in {settings.api_key_file for settings in targets.values()} if path}

    def execute(self, spec: ExecutionSpec, sink: IRunSink) -> Execution:
        settings: OpenAISettings = spec.settings     # type: ignore[assignment]  # our own factory made it
        try:
            self._tools.require([Upstream(settings.url)])
            api, body, streams = request_of(spec.request, settings.model)
        except IOPError as error:
            return refused(sink, error)
        run = ModelRun(spec, sink, StreamReader() if streams else WholeReader(), settings.url)

        def ask(receiver: Receiver) -> Exchange:
            return self._client(settings).ask(
                b"POST", f"{settings.url}/{api}", self._headers(settings), body, receiver,
                first_byte_s=settings.first_byte_s, idle_s=settings.idle_s, again=spec.may_repeat)

        run.begin(ask)
        return run

    def check(self) -> Deferred[dict[str, str]]:
        names = list(self._targets)
        asked = [self._check(self._targets[name]) for name in names]
        return gatherResults(asked).addCallback(lambda found: dict(zip(names, found, strict=True)))

    def close(self) -> Deferred[Any]:
        return gatherResults([client.close() for client in self._clients.values()])

    def _check(self, settings: OpenAISettings) -> Deferred[str]:
        found = self._client(settings).fetch(self.health_url(settings), self._headers(settings), within_s=4.5)
        return found.addCallbacks(
            lambda reply: "" if reply[0] == 200 else f"The backend at {settings.url} answers {reply[0]} to a health check.",
            lambda failure: failure.getErrorMessage())

    def health_url(self, settings: OpenAISettings) -> str:
        return settings.url + settings.health_path

    def _client(self, settings: OpenAISettings) -> HttpClient:
        return self._clients[settings.connect_s]

    def _headers(self, settings: OpenAISettings) -> dict[str, str]:
        if not settings.api_key_file:
            return settings.headers
        return settings.headers | {"Authorization": f"Bearer {self._keys[settings.api_key_file].reveal()}"}


@implementer(IPlugin, IAdapterFactory)
class OpenAIFactory:
    """`openai`: see the module."""

    name: ClassVar[str] = "openai"
    default_concurrency: ClassVar[int] = 64

    def settings(self, target: TargetConfig) -> OpenAISettings:
        return checked(checks.read_settings(target, OpenAISettings), target)

    def requirements(self, settings: OpenAISettings) -> list[Upstream]:
        return [Upstream(settings.url)]

    def build(self, targets: dict[str, OpenAISettings], tools: IAdapterTools) -> OpenAIAdapter:
        return OpenAIAdapter(targets, tools)


factory = OpenAIFactory()
