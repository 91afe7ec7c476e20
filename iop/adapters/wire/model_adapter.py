"""What all adapters of model backends share: targets at URLs, a request for each run, a look at whether they are there."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import msgspec
from twisted.internet.defer import Deferred, gatherResults, succeed
from zope.interface import implementer

from iop.adapters.executions import Execution, refused
from iop.adapters.wire.asked import JSON, Asked
from iop.adapters.wire.breaker import Breaker
from iop.adapters.wire.client import HttpClient
from iop.adapters.wire.exchange import Exchange, Receiver
from iop.adapters.wire.model_run import ModelRun
from iop.adapters.wire.model_settings import ModelSettings, read_model_settings, requirements_of
from iop.adapters.wire.owned_run import OwnedRun
from iop.errors import IOPError
from iop.interfaces import IAdapter, IAdapterTools, IHealth, IOwnsServers, IRunSink
from iop.proto.node_pb2 import TargetConfig
from iop.proto.run_pb2 import Outcome, RunRequest
from iop.requirements import Program, Upstream
from iop.runs import ExecutionSpec
from iop.servers import WARM, ServerSpec, TargetHealth, why_not_of

NO_PORT = 1               # where nobody listens


@implementer(IAdapter, IHealth)
class ModelAdapter:
    """The targets of one node at backends of one kind. Subclasses implement `_request` and `_check`."""

    def __init__(self, targets: dict[str, Any], tools: IAdapterTools) -> None:
        self._targets = targets
        self._tools = tools
        # A client per connect limit: nearly always one for all.
        self._clients = {limit: HttpClient(tools.reactor, tools.clock, connect_s=limit)
                         for limit in {settings.connect_s for settings in targets.values()}}
        self._breakers = {name: Breaker() for name in targets}
        self.doubtful = False

    def execute(self, spec: ExecutionSpec, sink: IRunSink) -> Execution:
        settings: Any = spec.settings                # our own factory made it
        try:
            self._tools.require(requirements_of(settings))
            anew = partial(self._request, spec.request, self._placed(settings))
            asked = anew()
        except IOPError as error:
            return refused(sink, error)
        by_bytes = settings.idle_by == "bytes"
        if settings.serve is not None:
            owned = OwnedRun(spec, sink, asked, settings.serve.id, idle_by_bytes=by_bytes)
            owned.finished.addCallback(self._ended, spec.target)
            owned.begin_at(self._tools.servers, settings.serve, partial(self._ask_owned, spec, settings), anew)
            return owned
        run = ModelRun(spec, sink, asked, settings.url, idle_by_bytes=by_bytes)
        run.finished.addCallback(self._ended, spec.target)
        run.begin(partial(self._ask, spec, settings, settings.url))
        return run

    def _ask(self, spec: ExecutionSpec, settings: ModelSettings, url: str, asked: Asked, receiver: Receiver) -> Exchange:
        headers = asked.headers if asked.content_type == JSON else asked.headers | {"Content-Type": asked.content_type}
        return self._client(settings).ask(
            b"POST", f"{url}/{asked.path}", headers, asked.body, receiver,
            first_byte_s=asked.whole_s or settings.first_byte_s, first_token_s=settings.first_token_s,
            idle_s=settings.idle_s, again=spec.may_repeat)

    def _placed(self, settings: ModelSettings) -> ModelSettings:
        """With the URL of a server of the node's own as far as it has one: the last word is that of the use."""
        if settings.serve is None:
            return settings
        url = self._tools.servers.url(settings.serve) or settings.serve.url(settings.serve.port or NO_PORT)
        return msgspec.structs.replace(settings, url=url + settings.serve_base)

    def _ask_owned(self, spec: ExecutionSpec, settings: ModelSettings, server_url: str, asked: Asked,
                   receiver: Receiver) -> Exchange:
        return self._ask(spec, settings, server_url + settings.serve_base, asked, receiver)

    def _ended(self, ending: tuple[str, Outcome], target: str) -> tuple[str, Outcome]:
        breaker = self._breakers.get(target)
        if breaker is not None and breaker.ended(*ending, self._tools.clock.seconds()):
            self.doubtful = True
        return ending

    def check(self) -> Deferred[dict[str, TargetHealth]]:
        self.doubtful = False
        names = list(self._targets)
        asked = [self._health(name, self._targets[name]) for name in names]
        return gatherResults(asked).addCallback(lambda found: dict(zip(names, found, strict=True)))

    def _health(self, name: str, settings: Any) -> Deferred[TargetHealth]:
        if settings.serve is None:
            return self._check(settings).addCallback(self._checked, name)
        state = self._tools.servers.state(settings.serve)
        if state != WARM:
            self._checked(TargetHealth(state), name)         # what comes after it has not failed yet
            return succeed(TargetHealth(why_not_of(state), warm=False))
        asked = self._check(self._placed(settings))
        asked.addCallback(lambda found: TargetHealth(warm=True, context_tokens=found.context_tokens))
        return asked.addCallback(self._checked, name)

    def _checked(self, found: TargetHealth, name: str) -> TargetHealth:
        why_not = self._breakers[name].checked(found.why_not, self._tools.clock.seconds())
        return msgspec.structs.replace(found, why_not=why_not)

    def close(self) -> Deferred[Any]:
        return gatherResults([client.close() for client in self._clients.values()])

    def _client(self, settings: ModelSettings) -> HttpClient:
        return self._clients[settings.connect_s]

    def _request(self, request: RunRequest, settings: Any) -> Asked:
        """Raises an IOPError to refuse the run."""
        raise NotImplementedError

    def _check(self, settings: Any) -> Deferred[TargetHealth]:
        """How the backend at `settings.url` is; never fails."""
        raise NotImplementedError


@implementer(IOwnsServers)
class ModelFactory:
    """What the factories of these adapters share: an IAdapterFactory but for its name."""

    default_concurrency: ClassVar[int] = 64
    kind: ClassVar[type[ModelSettings]]
    adapter: ClassVar[type[ModelAdapter]]

    def settings(self, target: TargetConfig) -> ModelSettings:
        return read_model_settings(target, self.kind)

    def requirements(self, settings: ModelSettings) -> list[Program | Upstream]:
        return requirements_of(settings)

    def server(self, settings: ModelSettings) -> ServerSpec | None:
        return settings.serve

    def build(self, targets: dict[str, Any], tools: IAdapterTools) -> ModelAdapter:
        return self.adapter(targets, tools)
