"""Ollama by its native API; OpenAI's chat is told in it, so that the OpenAI face works for these targets too."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from twisted.internet.defer import Deferred, gatherResults
from twisted.plugin import IPlugin
from zope.interface import implementer

from iop.adapters import settings as checks
from iop.adapters.executions import Execution, refused
from iop.adapters.settings import Settings
from iop.adapters.wire.client import HttpClient
from iop.adapters.wire.exchange import Exchange, Receiver
from iop.adapters.wire.model_run import ModelRun, Reader
from iop.adapters.wire.ollama import NativeReader, OpenAIReader, from_openai, request_body, to_messages
from iop.errors import InvalidRequest, IOPError
from iop.interfaces import IAdapter, IAdapterFactory, IAdapterTools, IHealth, IRunSink
from iop.proto.node_pb2 import TargetConfig
from iop.proto.run_pb2 import RunRequest
from iop.requirements import Upstream
from iop.runs import ExecutionSpec

NATIVE = ("api/chat", "api/generate")


class OllamaSettings(Settings):
    """`model` is Ollama's name for it; empty is the target's name. `options` are Ollama's own, a request's win."""

    url: str = "http://127.0.0.1:11434"
    model: str = ""
    keep_alive: str | int | None = None
    options: dict[str, Any] = {}
    connect_s: float = 5.0
    first_byte_s: float = 300.0      # a cold model is read from disk first
    idle_s: float = 60.0


@implementer(IAdapter, IHealth)
class OllamaAdapter:
    """The targets of one node at Ollama servers."""

    def __init__(self, targets: dict[str, OllamaSettings], tools: IAdapterTools) -> None:
        self._targets = targets
        self._tools = tools
        self._clients = {limit: HttpClient(tools.reactor, tools.clock, connect_s=limit)
                         for limit in {settings.connect_s for settings in targets.values()}}

    def execute(self, spec: ExecutionSpec, sink: IRunSink) -> Execution:
        settings: OllamaSettings = spec.settings     # type: ignore[assignment]  # our own factory made it
        try:
            self._tools.require([Upstream(settings.url)])
            path, body, reader = _request(spec.request, settings)
        except IOPError as error:
            return refused(sink, error)
        run = ModelRun(spec, sink, reader, settings.url)

        def ask(receiver: Receiver) -> Exchange:
            return self._clients[settings.connect_s].ask(
                b"POST", f"{settings.url}/{path}", {}, body, receiver,
                first_byte_s=settings.first_byte_s, idle_s=settings.idle_s, again=spec.may_repeat)

        run.begin(ask)
        return run

    def check(self) -> Deferred[dict[str, str]]:
        names = list(self._targets)
        asked = [Deferred.fromCoroutine(self._check(self._targets[name])) for name in names]
        return gatherResults(asked).addCallback(lambda found: dict(zip(names, found, strict=True)))

    def close(self) -> Deferred[Any]:
        return gatherResults([client.close() for client in self._clients.values()])

    async def _check(self, settings: OllamaSettings) -> str:
        """The list knows most models; what is named otherwise is asked for."""
        client = self._clients[settings.connect_s]
        try:
            status, body = await client.fetch(f"{settings.url}/api/tags", {}, within_s=2.4)
            if status != 200:
                return f"The backend at {settings.url} answers {status} to /api/tags."
            if settings.model in _names(body) or f"{settings.model}:latest" in _names(body):
                return ""
            asked = msgspec.json.encode({"model": settings.model})
            status, _ = await client.fetch(f"{settings.url}/api/show", {}, asked, within_s=2.4)
        except IOPError as error:
            return error.message
        return "" if status == 200 else f"Ollama has no model {settings.model}; `ollama pull {settings.model}` gets it."


def _names(body: bytes) -> set[str]:
    try:
        found = msgspec.json.decode(body)
        return {model["name"] for model in found["models"]}
    except (msgspec.DecodeError, KeyError, TypeError):
        return set()


def _request(request: RunRequest, settings: OllamaSettings) -> tuple[str, bytes, Reader]:
    """(path, body, reader) for a run. Raises InvalidRequest."""
    kind = request.WhichOneof("input")
    if kind == "body":
        return _body_request(request, settings)
    if kind == "messages":
        messages = to_messages(_decoded(request.messages, list))
    elif kind == "prompt":
        messages = [{"role": "user", "content": request.prompt}]
    else:
        raise InvalidRequest("The run has no input; give a prompt, messages or a body.")
    body = request_body(settings.model, messages, settings.options, settings.keep_alive)
    return "api/chat", msgspec.json.encode(body), NativeReader()


def _body_request(request: RunRequest, settings: OllamaSettings) -> tuple[str, bytes, Reader]:
    body = _decoded(request.body, dict)
    if request.api in NATIVE:
        body["model"] = settings.model
        if settings.options:
            body["options"] = settings.options | (body.get("options") or {})
        if settings.keep_alive is not None:
            body.setdefault("keep_alive", settings.keep_alive)
        return request.api, msgspec.json.encode(body), NativeReader(streams=body.get("stream") is not False)
    if request.api not in ("chat/completions", ""):
        raise InvalidRequest(f"An ollama target answers chat/completions, {' and '.join(NATIVE)}; not {request.api[:80]!r}.")
    asked = from_openai(body, settings.model, settings.options, settings.keep_alive)
    reader = OpenAIReader(request.run_id, request.created_us // 1_000_000, settings.model, streams=asked["stream"])
    return "api/chat", msgspec.json.encode(asked), reader


def _decoded(data: bytes, kind: type) -> Any:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        value = None
    if not isinstance(value, kind) or (kind is list and not all(isinstance(item, dict) for item in value)):
        raise InvalidRequest("The run's input must be JSON: a list of messages, or an object as the body.")
    return value


@implementer(IPlugin, IAdapterFactory)
class OllamaFactory:
    """`ollama`: see the module."""

    name: ClassVar[str] = "ollama"
    default_concurrency: ClassVar[int] = 4       # more than Ollama runs at once would wait inside it

    def settings(self, target: TargetConfig) -> OllamaSettings:
        settings = checks.read_settings(target, OllamaSettings)
        checks.check_seconds(connect_s=settings.connect_s, first_byte_s=settings.first_byte_s, idle_s=settings.idle_s)
        return msgspec.structs.replace(settings, url=checks.checked_url("url", settings.url),
                                       model=settings.model or target.name)

    def requirements(self, settings: OllamaSettings) -> list[Upstream]:
        return [Upstream(settings.url)]

    def build(self, targets: dict[str, OllamaSettings], tools: IAdapterTools) -> OllamaAdapter:
        return OllamaAdapter(targets, tools)


factory = OllamaFactory()
