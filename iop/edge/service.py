"""Everything that can be asked of an edge: the one contract behind every face. Thin: each noun has its own module."""

from __future__ import annotations

import copy
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.logger import Logger
from zope.interface import implementer

from iop.config import EdgeConfig
from iop.edge import health, recovery
from iop.edge.absence import Absences
from iop.edge.acks import Acks
from iop.edge.bus import Bus
from iop.edge.clients import Clients
from iop.edge.configs import Configs
from iop.edge.cursor import RunCursor
from iop.edge.dispatch import Dispatcher
from iop.edge.greeter import NodeGreeter
from iop.edge.intake import Intake
from iop.edge.late import Late
from iop.edge.nodefile import NodeFile
from iop.edge.nodes import Desk
from iop.edge.operations import Audit, NodeOperations
from iop.edge.outliving import outliving
from iop.edge.queue import RunQueue
from iop.edge.registry import Registry
from iop.edge.review import Review
from iop.edge.run import Run
from iop.edge.runoperations import RunOperations
from iop.edge.runs import Runs
from iop.edge.sessions import Sessions
from iop.edge.slots import Slots
from iop.errors import Draining
from iop.events import now_us
from iop.interfaces import IEdgeService
from iop.keys import KeyRing
from iop.link.calls import Calls
from iop.proto.node_pb2 import EdgeNodeEvent, NodeCommandResponse
from iop.proto.run_pb2 import EventBatch, Outcome, RunRequest, Source
from iop.records import ModelEntry, NodeView, RunQuery, RunRecord, SessionRecord, UsageQuery, UsageRow
from iop.runs import EventId
from iop.wholeness import Findings

STOPPING = "The edge is stopping."
EXPIRY_S = 1.0                   # how often the keys of live links are looked at

log = Logger()
T = TypeVar("T")


def _start(work: Coroutine[Deferred[Any], Any, T]) -> Deferred[T]:
    return Deferred.fromCoroutine(work)


@implementer(IEdgeService)
class EdgeService:
    """One edge. `start()` before anything is asked of it; `greeter` lets nodes in; `stop()` at the end."""

    def __init__(self, config: EdgeConfig, history: Any, clock: Any, keyring: KeyRing,
                 node_file: NodeFile | None = None) -> None:
        self.edge_id = config.edge.id
        self.keyring = keyring
        self._config = config
        self._history = history
        self._clock = clock
        self._stopping = False
        self._calls = Calls(clock)
        self._registry = Registry(now_us())
        self._queue = RunQueue(config.queue.limit)
        self._bus = Bus(history, clock)
        self._sessions = Sessions(history)
        self._runs = Runs(history, clock, config.edge.tail_bytes)
        self._intake = Intake(history, self._registry, lambda: self.keyring, self._queue_s, clock)
        self._dispatcher = Dispatcher(
            history, self._runs, self._registry, Slots(self._registry, self._sessions, self._intake.allowances.concurrency),
            self._queue, self._bus, clock)
        self._clients = Clients(self._runs, self._dispatcher, clock)
        self._absences = Absences(self._runs, clock, config.edge.lost_after_s)
        self._configs = Configs(now_us())
        self._audit = Audit(history, self._bus)
        self._node_file = node_file or NodeFile()
        self._operations = NodeOperations(self._registry, self._dispatcher, self._configs, self._calls, self._audit,
                                          self._node_file)
        self._asked = RunOperations(history, self._runs, self._registry, self._dispatcher, self._audit)
        self._review = Review(history, self._runs, clock)
        self._lag = health.LagProbe(clock)
        self._expiry: Any = None
        acks = Acks(self._registry, clock)
        self._runs.tell(started=self._run_started, ended=self._run_ended, committed=acks.committed,
                        refused=self._dispatcher.refused)
        self.greeter = NodeGreeter(lambda: self.keyring, Desk(
            history=history, late=Late(history), registry=self._registry, runs=self._runs, dispatcher=self._dispatcher,
            absences=self._absences, acks=acks, configs=self._configs, bus=self._bus,
            answered=self._calls.answered, link_lost=self._calls.link_down))
        self._configure(config)

    # --- life -------------------------------------------------------------------------------------------------------

    def start(self) -> Deferred[None]:
        """Take up what history has; fires when nodes may come and faces may ask. History is open already."""
        return _start(self._begin())

    async def _begin(self) -> None:
        self._node_file.load(self._registry)
        await self._sessions.load()
        await self._intake.load()
        await recovery.recover(self._history, self._runs, self._dispatcher, self._absences)
        self._clients.expect()
        self._lag.start()
        self._expiry = self._clock.callLater(EXPIRY_S, self._expire_links)
        self._bus.tell("edge_started")

    def stop_intake(self) -> None:
        """The edge is stopping: no new runs, no new links, nothing placed. What runs is left to its nodes."""
        self._stopping = self.greeter.closed = True
        self._dispatcher.stop()

    def stop(self) -> None:
        """Let go of all timers; links and history are closed by whoever opened them."""
        self.stop_intake()
        self._absences.stop()
        self._lag.stop()
        self._runs.recorder.stop()
        self._bus.stop()
        if self._expiry is not None and self._expiry.active():
            self._expiry.cancel()

    def _configure(self, config: EdgeConfig) -> set[str]:
        self._config = config
        self._registry.configured(config.nodes)
        self._queue.limit = config.queue.limit
        self._runs.prices = config.prices
        self._absences.lost_after_s = config.edge.lost_after_s
        return self._configs.replace(config.nodes, config.limits)

    def reload(self, config: EdgeConfig, keyring: KeyRing) -> None:
        """A new edge.yaml and new keys: the parts that changed are sent, links of keys that are gone are closed, running
        work is untouched."""
        labels = {node.node_id: node.edge_labels for node in self._registry}
        changed = self._configure(config)
        for node in self._registry:
            if node.ready and (node.node_id in changed or node.edge_labels != labels.get(node.node_id, {})):
                node.link.send("node_config_payload", self._configs.changes(node))
        self.keyring = keyring
        _start(self._intake.load()).addErrback(
            lambda failure: log.warn("what keys have used is not read again: {trouble}", trouble=failure.getErrorMessage()))
        self._close_expired()
        self._dispatcher.pump()
        self._bus.tell("config_reloaded", nodes=sorted(changed))

    def _expire_links(self) -> None:
        self._expiry = self._clock.callLater(EXPIRY_S, self._expire_links)
        self._close_expired()

    def _close_expired(self) -> None:
        """Links whose key was taken away or has come to its end."""
        for node in self._registry:
            if node.link is not None and not self.keyring.holds(node.handler.key):
                log.warn("the key of {node_id} is not valid any more; its link is closed", node_id=node.node_id)
                node.link.close("auth_failed", "The node's token is not valid any more.")

    # --- runs -------------------------------------------------------------------------------------------------------

    def submit(self, request: RunRequest, source: Source, idempotency_key: str | None = None) -> Deferred[RunRecord]:
        """See IEdgeService. Cancelling it ends the run that may have begun meanwhile, unless a key lets it be found again."""
        def late(record: RunRecord) -> None:
            if idempotency_key is None:
                self.abandon(record.run_id, source, "the submitter went away")
        return outliving(maybeDeferred(self._submit, request, source, idempotency_key), late)

    def _submit(self, request: RunRequest, source: Source, key: str | None) -> Deferred[RunRecord]:
        if self._stopping:
            raise Draining(STOPPING)
        return self._dispatcher.accept(*self._intake.take(request, source, key))

    def _queue_s(self, adapter: str, target: str) -> float:
        return self._configs.queue_s(adapter, target) or self._config.limits.queue_s or self._config.queue.deadline_s

    def cancel(self, run_id: str, source: Source, reason: str = "") -> Deferred[RunRecord]:
        return _start(self._asked.cancel(run_id, source, reason))

    def forget(self, run_id: str, source: Source) -> Deferred[None]:
        return _start(self._asked.forget(run_id, source))

    def attend(self, run_id: str) -> None:
        self._clients.attend(run_id)

    def abandon(self, run_id: str, source: Source, reason: str) -> None:
        """See IEdgeService. Where the edge itself cuts its clients off, since it stops, that is the reason."""
        self._clients.leave(run_id, source, STOPPING if self._stopping else reason)

    def give_input(self, run_id: str, data: bytes, end: bool, source: Source) -> Deferred[None]:
        return _start(self._asked.give_input(run_id, data, end, source))

    def position(self, run_id: str) -> int:
        run = self._runs.get(run_id)
        return self._dispatcher.position(run) if run is not None else 0

    def run(self, run_id: str) -> Deferred[RunRecord]:
        live = self._runs.get(run_id)
        return succeed(copy.copy(live.record)) if live is not None else _start(self._runs.record(run_id))

    def runs(self, query: RunQuery) -> Deferred[tuple[list[RunRecord], str]]:
        return _start(self._list(query))

    async def _list(self, query: RunQuery) -> tuple[list[RunRecord], str]:
        """History's page; of the runs that are live, memory knows better."""
        records, following = await self._history.runs(query)
        live = [self._runs.get(record.run_id) for record in records]
        return [record if run is None else copy.copy(run.record)
                for record, run in zip(records, live, strict=True)], following

    def usage(self, query: UsageQuery) -> Deferred[list[UsageRow]]:
        found: Deferred[list[UsageRow]] = self._history.usage(query)
        return found

    def verify(self, run_id: str) -> Deferred[Findings]:
        return _start(self._review.verify(run_id))

    def late(self, run_id: str, after: EventId) -> Deferred[list[EventBatch]]:
        return _start(self._review.late(run_id, after))

    def cursor(self, run_id: str, after: EventId) -> Deferred[RunCursor]:
        live = self._runs.get(run_id)
        return succeed(self._runs.cursor_of(live, after)) if live is not None else _start(self._runs.cursor(run_id, after))

    def _run_started(self, run: Run) -> None:
        self._bus.tell("run_started", node_id=run.record.node_id, run_id=run.run_id, source=run.request.source,
                       attempt=run.record.attempt)

    def _run_ended(self, run: Run, outcome: Outcome) -> None:
        record = run.record
        self._intake.allowances.charge(record.principal, record.prompt_tokens + record.completion_tokens, record.cost_micros)
        self._dispatcher.ended(run, outcome)

    # --- models and nodes -------------------------------------------------------------------------------------------

    def models(self) -> list[ModelEntry]:
        return self._registry.models()

    def resolve(self, model: str) -> tuple[str, str, str]:
        return self.targets(model)[0]

    def targets(self, model: str) -> list[tuple[str, str, str]]:
        named = self._registry.find(model)
        return [(adapter, target, named.node_id) for adapter, target in named.names]

    def permits(self, principal: str, model: str) -> bool:
        named = self._registry.find(model)
        names = ["/".join(name) for name in named.names]
        return self._intake.allowances.permits(principal, named.alias or named.names[0][1], names)

    def ready(self, model: str) -> bool:
        return self._registry.ready(model)

    def allowance(self, principal: str) -> dict[str, str]:
        return self._intake.allowances.headers(principal)

    def nodes(self) -> list[NodeView]:
        return [node.view() for node in self._registry]

    def node(self, node_id: str) -> NodeView:
        return self._registry.node(node_id).view()

    def label(self, node_id: str, changes: dict[str, str | None], source: Source) -> Deferred[NodeView]:
        return _start(self._operations.label(node_id, changes, source))

    def drain(self, node_id: str, draining: bool, source: Source) -> Deferred[NodeView]:
        return _start(self._operations.drain(node_id, draining, source))

    def command(self, node_id: str, line: str, source: Source, timeout_s: float = 30.0) -> Deferred[NodeCommandResponse]:
        return _start(self._operations.command(node_id, line, source, timeout_s))

    # --- sessions, events, health -----------------------------------------------------------------------------------

    def sessions(self) -> Deferred[list[SessionRecord]]:
        return succeed(self._sessions.all())

    def close_session(self, session_id: str, source: Source) -> Deferred[SessionRecord]:
        return _start(self._close_session(session_id, source))

    async def _close_session(self, session_id: str, source: Source) -> SessionRecord:
        record = self._sessions.get(session_id)
        await self._audit.before(source, "close_session", node_id=record.node_id, session_id=session_id)
        return await self._sessions.close(session_id)

    def events(self, after: int | None, limit: int) -> Deferred[list[EdgeNodeEvent]]:
        return self._bus.events(after, limit)

    def watch(self, callback: Callable[[EdgeNodeEvent], object]) -> Callable[[], None]:
        return self._bus.watch(callback)

    def health(self) -> dict[str, object]:
        recorder = self._runs.recorder
        trouble = recorder.trouble or ("" if self._history.available else "the last commit failed.")
        nodes = list(self._registry)
        return health.judge(
            lag_ms=self._lag.worst_ms, backlog=self._history.backlog() + recorder.backlog, trouble=trouble,
            stopping=self._stopping, nodes_up=sum(node.up for node in nodes), nodes=len(nodes),
            runs_open=len(self._runs), queued=len(self._queue))
