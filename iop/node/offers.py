"""What this node offers: the edge's configuration and the node's own targets, judged, built and told.

A target that is refused does not touch its neighbours; a part (an adapter) that cannot be built leaves the last good one
in place; running work goes on on the adapter it began with, which is closed when its last run has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from twisted.logger import Logger

from iop.errors import ConfigError
from iop.interfaces import IAdapterFactory, IOffersInput, IOwnsServers
from iop.node.backend import Backend
from iop.node.merging import merged_part
from iop.node.policy import LOCKED
from iop.node.router import OfferedTarget
from iop.node.tools import Tools
from iop.proto import node_pb2, run_pb2
from iop.proto.node_pb2 import AdapterConfig, ConfigApplied, ConfigFault, ConfigPartApplied, NodeConfigPayload
from iop.servers import ServerSpec

log = Logger()


class Offers:
    """The backends of this node, by adapter name."""

    def __init__(self, own: Iterable[AdapterConfig], tools: Tools,
                 factories: Callable[[], Iterable[IAdapterFactory]]) -> None:
        self.backends: dict[str, Backend] = {}
        self.labels: dict[str, str] = {}         # given by the edge
        self.revision = 0
        self._own = {part.adapter: part for part in own}
        self._tools = tools
        self._factories = factories
        self._asked: dict[str, AdapterConfig] = {}
        self._built_from: dict[str, tuple[bytes, ConfigPartApplied]] = {}
        self._answers: dict[str, ConfigPartApplied] = {}

    def apply(self, payload: NodeConfigPayload) -> ConfigApplied:
        """Take a configuration; the answer names each part that was asked for, or is the node's own."""
        self.revision = payload.revision
        touched = {part.adapter for part in payload.adapters} | set(payload.removed_adapters)
        if payload.whole:
            touched |= set(self._asked) | set(self._own)
            self._asked = {}
        if payload.whole or payload.labels:
            self.labels = dict(payload.labels)
        for part in payload.adapters:
            self._asked[part.adapter] = part
        for name in payload.removed_adapters:
            self._asked.pop(name, None)
        return self._answer(touched)

    def judge_again(self) -> ConfigApplied:
        """The policy has changed: everything is judged anew."""
        self._built_from.clear()
        return self._answer(set(self._asked) | set(self._own), last_good=False)

    def rebuilt(self, name: str, config: node_pb2.TargetConfig) -> Backend:
        """A backend apart from the others, for one run of an earlier start of the node. Raises ConfigError."""
        factory = next((factory for factory in self._factories() if factory.name == name), None)
        if factory is None:
            raise ConfigError(f"This node has no adapter {name} any more.")
        settings = factory.settings(config)
        return Backend(factory, factory.build({config.name: settings}, self._tools),
                       {config.name: OfferedTarget(config=config, settings=settings)}, 0)

    def servers(self) -> list[ServerSpec]:
        """Those of its targets that it starts itself."""
        return [target.server for backend in self.backends.values() for target in backend.targets.values()
                if target.server is not None]

    def faults(self) -> list[ConfigFault]:
        """What stands refused now."""
        return [fault for answer in self._answers.values() for fault in answer.faults]

    def _answer(self, names: Iterable[str], last_good: bool = True) -> ConfigApplied:
        applied = ConfigApplied(revision=self.revision)
        factories = {factory.name: factory for factory in self._factories()}
        for name in sorted(names):
            applied.parts.append(self._part(name, factories.get(name), last_good))
        self._tools.own = [requirement for backend in self.backends.values() for target in backend.targets.values()
                           if target.own for requirement in target.requirements]
        return applied

    def _part(self, name: str, factory: IAdapterFactory | None, last_good: bool) -> ConfigPartApplied:
        if name not in self._asked and name not in self._own:
            self._replace(name, None)
            self._answers.pop(name, None)
            return ConfigPartApplied(path=f"adapters/{name}", accepted=True)
        nothing = AdapterConfig(adapter=name)
        merged = merged_part(self._asked.get(name, nothing), self._own.get(name, nothing))
        source = merged.SerializeToString(deterministic=True)
        built_from, answer = self._built_from.get(name, (None, None))
        if answer is None or built_from != source:
            answer = self._build(name, factory, merged)
            if answer.accepted:
                self._built_from[name] = source, answer
            elif not last_good:
                self._replace(name, None)
            for fault in answer.faults:
                log.warn("refused {path} ({code}): {reason}", path=fault.path, code=fault.code, reason=fault.reason)
        self._answers[name] = answer
        return answer

    def _build(self, name: str, factory: IAdapterFactory | None, merged: AdapterConfig) -> ConfigPartApplied:
        answer = ConfigPartApplied(path=f"adapters/{name}")
        if factory is None:
            known = ", ".join(sorted(other.name for other in self._factories()))
            answer.faults.append(ConfigFault(path=answer.path, code="no_such_adapter",
                                             reason=f"This node has no adapter {name}; it has {known}."))
            return answer
        targets = self._targets(factory, merged, answer)
        try:
            adapter = factory.build({target.name: target.settings for target in targets.values()}, self._tools)
        except ConfigError as error:
            answer.faults.append(ConfigFault(path=answer.path, code=error.code, reason=error.message))
            return answer
        except Exception:
            log.failure("the adapter {name} could not be built", name=name)
            answer.faults.append(ConfigFault(path=answer.path, code="adapter_error",
                                             reason="The adapter failed to start; the node's log has the details."))
            return answer
        self._replace(name, Backend(factory, adapter, targets, merged.concurrency or factory.default_concurrency))
        answer.accepted = True
        return answer

    def _targets(self, factory: IAdapterFactory, merged: AdapterConfig,
                 answer: ConfigPartApplied) -> dict[str, OfferedTarget]:
        """Those that can be offered, by name; `answer` gets the faults of the others."""
        own = {target.name for target in self._own.get(factory.name, AdapterConfig()).targets}
        targets: dict[str, OfferedTarget] = {}
        for config in merged.targets:
            path = f"{answer.path}/targets/{config.name}"
            if config.name in targets:
                answer.faults.append(ConfigFault(path=path, code="config_error", reason="This target stands here twice."))
                continue
            offered, faults = self._target(factory, config, path, config.name in own)
            answer.faults.extend(faults)
            if offered is not None:
                targets[config.name] = offered
        return targets

    def _target(self, factory: IAdapterFactory, config: node_pb2.TargetConfig, path: str,
                own: bool) -> tuple[OfferedTarget | None, list[ConfigFault]]:
        try:
            settings = factory.settings(config)
            requirements = tuple(factory.requirements(settings))
        except ConfigError as error:
            return None, [ConfigFault(path=path, code=error.code, reason=error.message)]
        except Exception:
            log.failure("the adapter {name} failed on the settings of {path}", name=factory.name, path=path)
            return None, [ConfigFault(path=path, code="adapter_error",
                                      reason="The adapter failed on these settings; the node's log has the details.")]
        faults = self._judge(factory, requirements, own)
        for fault in faults:
            fault.path = f"{path}/{fault.path}" if fault.path else path
        ceiling = config.limits if own else run_pb2.Limits()
        offered = OfferedTarget(config=config, settings=settings, requirements=requirements, own=own, ceiling=ceiling,
                                takes_input=IOffersInput.providedBy(factory) and factory.takes_input(settings),
                                server=factory.server(settings) if IOwnsServers.providedBy(factory) else None)
        return (None if faults else offered), faults

    def _judge(self, factory: IAdapterFactory, requirements: tuple, own: bool) -> list[ConfigFault]:
        policy = self._tools.policy
        if policy.mode == "locked" and not own and not requirements:
            return [ConfigFault(path="", code="policy_denied", reason=LOCKED)]
        return policy.judge(requirements, own)

    def _replace(self, name: str, backend: Backend | None) -> None:
        old = self.backends.pop(name, None)
        if backend is not None:
            self.backends[name] = backend
        else:
            self._built_from.pop(name, None)
        if old is not None:
            old.retire()
