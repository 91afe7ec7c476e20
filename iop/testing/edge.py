"""A fake edge behind every face: runs whose events a test tells, or plays from a script. Nothing in it waits.

::

    edge = FakeEdge()
    edge.scripts["tiny"] = script(events.output("hel"), events.output("lo"))
    ...
    run = edge.last          # the run that was submitted last
    run.emit(events.output("x"))
    run.end("completed")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from twisted.internet import defer
from zope.interface import implementer

from iop import events
from iop.errors import Conflict, InvalidRequest, IOPError, NoSuchNode, NoSuchRun, NoSuchTarget
from iop.interfaces import IEdgeService
from iop.proto import node_pb2, run_pb2
from iop.proto.link_pb2 import Frame
from iop.records import ModelEntry, NodeView, RunQuery, RunRecord, SessionRecord, TargetView, UsageQuery, UsageRow
from iop.runs import EventId, new_run_id
from iop.testing.runs import FakeCursor, FakeRun, Script, matches, script
from iop.wholeness import Checker, Findings

__all__ = ["FakeEdge", "script"]


@implementer(IEdgeService)
class FakeEdge:
    """An edge with one node `n1` that offers the models `tiny` (openai) and the program `echo` (cli)."""

    edge_id = "edge"

    def __init__(self) -> None:
        self.runs_by_id: dict[str, FakeRun] = {}
        self.scripts: dict[str, Script] = {}           # by target; a run without one waits to be told
        self.refusal: IOPError | None = None           # what submit() fails with
        self.forbidden: set[str] = set()               # models that no key may use
        self.submitting: defer.Deferred[object] | None = None   # what submit() waits for
        self.asked: list[tuple[str, run_pb2.Source | None]] = []
        self.answers: dict[str, node_pb2.NodeCommandResponse] = {}   # by command line
        self.sessions_by_id: dict[str, SessionRecord] = {}
        self.left: dict[str, dict[str, str]] = {}      # what allowance() tells of a principal
        self.life: list[node_pb2.EdgeNodeEvent] = []
        self.healthy: dict[str, object] = {"ready": True, "reasons": [], "reactor_lag_ms": 0.5, "history_backlog": 0,
                                           "nodes_up": 1, "runs_open": 0}
        self._watchers: list[Callable[[node_pb2.EdgeNodeEvent], object]] = []
        self._idempotent: dict[tuple[str, str], str] = {}
        self.nodes_by_id = {"n1": NodeView(
            node_id="n1", state="up", draining=False, labels={"room": "lab"}, version="0.1.0", epoch=1,
            targets=[_target("openai", "tiny", ["small"]), _target("openai", "org/big", []), _target("cli", "echo", [])])}

    @property
    def last(self) -> FakeRun:
        return list(self.runs_by_id.values())[-1]

    # --- IEdgeService

    def submit(self, request: run_pb2.RunRequest, source: run_pb2.Source,
               idempotency_key: str | None = None) -> defer.Deferred[RunRecord]:
        if self.submitting is not None:
            waiting, self.submitting = self.submitting, None
            return waiting.addCallback(lambda _: self.submit(request, source, idempotency_key))
        try:
            return defer.succeed(self._submitted(request, source, idempotency_key))
        except IOPError as error:
            return defer.fail(error)

    def _submitted(self, request: run_pb2.RunRequest, source: run_pb2.Source, key: str | None) -> RunRecord:
        if self.refusal is not None:
            raise self.refusal
        if not request.adapter:
            request.adapter, target, node_id = self.resolve(request.target)
            request.target = f"{node_id}/{request.adapter}/{target}" if node_id else target
        pin, _, rest = request.target.partition(f"/{request.adapter}/")
        if rest and pin in self.nodes_by_id:     # node/adapter/target
            request.target = rest
        if not any((entry.adapter, entry.target) == (request.adapter, request.target) for entry in self.models()):
            raise NoSuchTarget(f"No node offers {request.adapter}/{request.target}.")
        earlier = self._idempotent.get((source.principal, key)) if key is not None else None
        if earlier is not None:
            known = self.runs_by_id[earlier].request
            if (known.adapter, known.prompt, known.messages, known.body) != (
                    request.adapter, request.prompt, request.messages, request.body):
                raise Conflict
            return self.runs_by_id[earlier].record
        request.run_id, request.attempt = new_run_id(), 1
        record = RunRecord(
            run_id=request.run_id, state="placed", adapter=request.adapter, target=request.target, attempt=1,
            node_id=pin if rest else "n1",
            created_us=events.now_us(), session_id=request.session_id, priority=request.priority, face=source.face,
            principal=source.principal, request_id=source.request_id, idempotency_key=key,
            request=request.SerializeToString())
        run = self.runs_by_id[request.run_id] = FakeRun(record, request)
        if key is not None:
            self._idempotent[(source.principal, key)] = request.run_id
        if request.target in self.scripts:
            self.scripts[request.target](run)
        return record

    def cancel(self, run_id: str, source: run_pb2.Source, reason: str = "") -> defer.Deferred[RunRecord]:
        run = self.runs_by_id.get(run_id)
        if run is None:
            return defer.fail(NoSuchRun())
        run.cancels.append((source, reason))
        if not run.record.ended:
            run.end("cancelled", run_pb2.Outcome(code="cancelled", message=reason))
        return defer.succeed(run.record)

    def forget(self, run_id: str, source: run_pb2.Source) -> defer.Deferred[None]:
        run = self.runs_by_id.get(run_id)
        if run is None:
            return defer.fail(NoSuchRun())
        if not run.record.ended:
            return defer.fail(Conflict("The run has not ended; cancel it first."))
        run.record.forgotten = events.now_us()
        return defer.succeed(None)

    def attend(self, run_id: str) -> None:
        self.runs_by_id[run_id].clients += 1

    def abandon(self, run_id: str, source: run_pb2.Source, reason: str) -> None:
        run = self.runs_by_id[run_id]
        run.clients -= 1
        if run.clients > 0:
            return
        run.cancels.append((source, reason))
        if not run.record.ended:
            run.end("cancelled", run_pb2.Outcome(code="cancelled", message=reason))

    def give_input(self, run_id: str, data: bytes, end: bool, source: run_pb2.Source) -> defer.Deferred[None]:
        run = self.runs_by_id.get(run_id)
        if run is None:
            return defer.fail(NoSuchRun())
        if run.record.ended:
            return defer.fail(InvalidRequest("The run has ended."))
        run.inputs.append((data, end))
        return defer.succeed(None)

    def position(self, run_id: str) -> int:
        run = self.runs_by_id.get(run_id)
        return 1 if run is not None and run.record.state == "queued" else 0

    def run(self, run_id: str) -> defer.Deferred[RunRecord]:
        run = self.runs_by_id.get(run_id)
        return defer.succeed(run.record) if run is not None else defer.fail(NoSuchRun())

    def runs(self, query: RunQuery) -> defer.Deferred[tuple[list[RunRecord], str]]:
        found = [run.record for run in reversed(self.runs_by_id.values()) if matches(run.record, query)]
        start = int(query.cursor or 0)
        following = start + query.limit
        return defer.succeed((found[start:following], str(following) if following < len(found) else ""))

    def usage(self, query: UsageQuery) -> defer.Deferred[list[UsageRow]]:
        names = {"key": "op", "model": "openai/tiny", "node": "n1"}
        row = UsageRow(**{name: names[name] for name in query.by}, runs=len(self.runs_by_id))
        return defer.succeed([row] if query.principal in ("", row.key) else [])

    def verify(self, run_id: str) -> defer.Deferred[Findings]:
        run = self.runs_by_id.get(run_id)
        if run is None:
            return defer.fail(NoSuchRun())
        checker = Checker(run.record)
        for entry in run.entries:
            checker.batch(entry.attempt, entry.first_seq, entry.last_seq, Frame(event_batch=entry.batch).SerializeToString())
        return defer.succeed(checker.findings())

    def late(self, run_id: str, after: EventId) -> defer.Deferred[list[run_pb2.EventBatch]]:
        run = self.runs_by_id.get(run_id)
        if run is None:
            return defer.fail(NoSuchRun())
        return defer.succeed([batch for batch in run.late
                              if (batch.attempt, batch.first_seq + len(batch.events) - 1) > (after.attempt, after.seq)])

    def cursor(self, run_id: str, after: EventId) -> defer.Deferred[FakeCursor]:
        run = self.runs_by_id.get(run_id)
        if run is None:
            return defer.fail(NoSuchRun())
        cursor = FakeCursor(run, after)
        run.cursors.append(cursor)
        return defer.succeed(cursor)

    def models(self) -> list[ModelEntry]:
        return [ModelEntry(name=name, adapter=target.adapter, target=target.target, created_us=1_760_000_000_000_000,
                           warm=target.warm, context_tokens=target.context_tokens,
                           ready=node.state == "up" and not node.draining and target.ready)
                for node in self.nodes_by_id.values() for target in node.targets
                for name in (target.target, *target.aliases)]

    def resolve(self, model: str) -> tuple[str, str, str]:
        for entry in self.models():
            if model == entry.name:
                return entry.adapter, entry.target, ""
        for entry in self.models():
            if model == f"{entry.adapter}/{entry.target}":
                return entry.adapter, entry.target, ""
            for node_id in self.nodes_by_id:
                if model == f"{node_id}/{entry.adapter}/{entry.target}":
                    return entry.adapter, entry.target, node_id
        raise NoSuchTarget(f"The model {model!r} is not known.")

    def targets(self, model: str) -> list[tuple[str, str, str]]:
        return [self.resolve(model)]

    def permits(self, principal: str, model: str) -> bool:
        self.resolve(model)
        return model not in self.forbidden

    def ready(self, model: str) -> bool:
        adapter, target, _ = self.resolve(model)
        return any(entry.ready for entry in self.models() if (entry.adapter, entry.target) == (adapter, target))

    def allowance(self, principal: str) -> dict[str, str]:
        return dict(self.left.get(principal, {}))

    def nodes(self) -> list[NodeView]:
        return list(self.nodes_by_id.values())

    def node(self, node_id: str) -> NodeView:
        if node_id not in self.nodes_by_id:
            raise NoSuchNode(f"There is no node {node_id!r}.")
        return self.nodes_by_id[node_id]

    def label(self, node_id: str, changes: dict[str, str | None], source: run_pb2.Source) -> defer.Deferred[NodeView]:
        self.asked.append((f"label {node_id}", source))
        return defer.execute(self._label, node_id, changes)

    def _label(self, node_id: str, changes: dict[str, str | None]) -> NodeView:
        node = self.node(node_id)
        for name, value in changes.items():
            if value is None:
                node.labels.pop(name, None)
            else:
                node.labels[name] = value
        return node

    def drain(self, node_id: str, draining: bool, source: run_pb2.Source) -> defer.Deferred[NodeView]:
        self.asked.append((f"drain {node_id} {draining}", source))
        return defer.execute(self._drain, node_id, draining)

    def _drain(self, node_id: str, draining: bool) -> NodeView:
        node = self.node(node_id)
        node.draining = draining
        return node

    def command(self, node_id: str, line: str, source: run_pb2.Source,
                timeout_s: float = 30.0) -> defer.Deferred[node_pb2.NodeCommandResponse]:
        self.asked.append((f"command {node_id} {line}", source))
        if node_id not in self.nodes_by_id:
            return defer.fail(NoSuchNode(f"There is no node {node_id!r}."))
        unknown = node_pb2.NodeCommandResponse(code="invalid_request", message="There is no such command.")
        return defer.succeed(self.answers.get(line, unknown))

    def sessions(self) -> defer.Deferred[list[SessionRecord]]:
        return defer.succeed(list(self.sessions_by_id.values()))

    def close_session(self, session_id: str, source: run_pb2.Source) -> defer.Deferred[SessionRecord]:
        self.asked.append((f"close_session {session_id}", source))
        session = self.sessions_by_id.get(session_id)
        if session is None:
            return defer.fail(Conflict(f"There is no session {session_id!r}."))
        session.closed_us = events.now_us()
        return defer.succeed(session)

    def events(self, after: int | None, limit: int) -> defer.Deferred[list[node_pb2.EdgeNodeEvent]]:
        if after is None:
            return defer.succeed(self.life[-limit:])
        return defer.succeed([event for event in self.life if event.event_id > after][:limit])

    def watch(self, callback: Callable[[node_pb2.EdgeNodeEvent], object]) -> Callable[[], None]:
        self._watchers.append(callback)

        def end() -> None:
            if callback in self._watchers:
                self._watchers.remove(callback)
        return end

    def health(self) -> dict[str, object]:
        return dict(self.healthy)

    # --- what a test tells

    def happened(self, kind: str, *, node_id: str = "", run_id: str = "", detail: bytes = b"{}") -> node_pb2.EdgeNodeEvent:
        """A lifecycle event, durable at once."""
        event = node_pb2.EdgeNodeEvent(event_id=len(self.life) + 1, at_us=events.now_us(), kind=kind, node_id=node_id,
                                       run_id=run_id, detail=detail)
        self.life.append(event)
        for callback in list(self._watchers):
            callback(event)
        return event

    @property
    def watchers(self) -> Iterable[Callable[[node_pb2.EdgeNodeEvent], object]]:
        return tuple(self._watchers)


def _target(adapter: str, target: str, aliases: list[str]) -> TargetView:
    return TargetView(adapter=adapter, target=target, aliases=aliases, concurrency=4, running=0, ready=True, detail="")
