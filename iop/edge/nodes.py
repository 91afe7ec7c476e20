"""The edge's side of a node's link: what each of its frames does.

::

    Hello --> NodeGreeter (greeter.py) --> link_up
    RunsReport ... last  --> look up in history --> Verdicts ... last, NodeConfigPayload
    ConfigApplied, NodeStatus --> the node can be placed on
    EventBatch --> gathered by run --> at the end of the read: RunLog, readers, history; EventAck after the commit
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import implementer

from iop.edge.absence import Absences
from iop.edge.acks import Acks
from iop.edge.bus import Bus
from iop.edge.configs import Configs
from iop.edge.dispatch import Dispatcher
from iop.edge.late import Late
from iop.edge.node import Node, differ
from iop.edge.packing import Sheaf
from iop.edge.registry import Registry
from iop.edge.reports import Reports
from iop.edge.run import Run
from iop.edge.runlog import Hole
from iop.edge.runs import Runs
from iop.errors import IOPError, NoSuchRun
from iop.interfaces import ILinkHandler
from iop.keys import Key
from iop.link.errors import RemoteProtocolError
from iop.proto.link_pb2 import VERDICT_FENCED, Hello, RunsReport, RunVerdict, Verdicts
from iop.proto.node_pb2 import ConfigApplied, NodeCommandResponse, NodeStatus
from iop.proto.run_pb2 import EventBatch, Resend, RunAccepted, RunRejected, Source

log = Logger()


@dataclass(frozen=True, slots=True)
class Desk:
    """What a link's frames are for: who is told of them."""

    history: Any
    late: Late
    registry: Registry
    runs: Runs
    dispatcher: Dispatcher
    absences: Absences
    acks: Acks
    configs: Configs
    bus: Bus
    answered: Callable[[str, NodeCommandResponse], object]      # a command's id and its answer
    link_lost: Callable[[Any], object]                          # the calls that wait on a link end


@implementer(ILinkHandler)
class NodeLink:
    """One link of one node. Frames of a link that was superseded do nothing: `node.link` is another one then."""

    def __init__(self, desk: Desk, node: Node, key: Key, hello: Hello) -> None:
        self.key = key
        self.node = node
        self._desk = desk
        self._source = Source(face="node", principal=node.node_id, request_id=hello.instance)
        self._version = hello.version
        self._reports = Reports(node.node_id, desk.history, desk.runs, desk.dispatcher)
        self._link: Any = None
        self._most_bytes = 0                             # of one run that may be un-acknowledged
        self._fenced: set[tuple[str, int]] = set()       # told on this link
        self._sheaves: dict[str, Sheaf] = {}             # run_id -> what this read has brought of it so far

    # --- ILinkHandler -----------------------------------------------------------------------------------------------

    def link_up(self, link: Any) -> None:
        self._link = link
        self._most_bytes = 2 * link.limits.run_window_bytes + link.limits.transfer_bytes
        self.node = self._desk.registry.known(self.node.node_id)     # it may have been forgotten while it was greeted
        self.node.connected(link)
        self.node.instance = self._source.request_id
        self.node.handler = self
        self._desk.bus.tell("node_up", node_id=self.node.node_id, source=self._source, remote=link.remote,
                            epoch=link.epoch, version=self._version)

    def frame_received(self, link: Any, kind: str, message: Any, packed: bytes) -> None:
        if self.node.link is not link:
            return
        try:
            if kind == "event_batch":
                self._gather(message, packed)
            else:
                self._deliver()          # the order within a link holds over all kinds
                _HANDLERS[kind](self, message, packed)
        except RemoteProtocolError as error:
            self._broken(error)

    def read_finished(self, link: Any) -> None:
        try:
            self._deliver()
        except RemoteProtocolError as error:
            self._broken(error)
        self._desk.runs.flush()

    def link_down(self, link: Any, reason: IOPError) -> None:
        self._sheaves.clear()            # not acknowledged: it comes again
        self._desk.link_lost(link)
        if self.node.link is not link:
            return
        self.node.disconnected()
        self._desk.absences.left(self.node.node_id)
        self._desk.bus.tell("node_down", node_id=self.node.node_id, source=self._source, code=reason.code,
                            message=reason.message)
        self._desk.runs.flush()

    def _broken(self, error: RemoteProtocolError) -> None:
        log.warn("{node_id} broke the protocol ({code}): {message}", node_id=self.node.node_id, code=error.code,
                 message=error.message)
        if self._link is not None:
            self._link.close(error.code, error.message)

    # --- coming back ------------------------------------------------------------------------------------------------

    def _runs_report(self, page: RunsReport, packed: bytes) -> None:
        self._reports.add(list(page.runs))
        if page.last:
            self._spawn(self._answer_report())

    async def _answer_report(self) -> None:
        ended = await self._reports.look_up()
        if self.node.link is not self._link:
            return
        self._reports.adopt()
        pages = self._reports.verdicts(ended)
        for page in pages:
            self._link.send("verdicts", page)
        self.node.ready = True
        self._desk.absences.returned(self.node.node_id)
        self._desk.dispatcher.reported()
        unsent = self._reports.settle(self.node.instance)
        self._tell_forgotten(pages)
        self._link.send("node_config_payload", self._desk.configs.whole(self.node))
        for run in unsent:
            self._desk.dispatcher.send_again(run, self._link)
        self._desk.runs.flush()

    def _tell_forgotten(self, pages: list[Verdicts]) -> None:
        """The node stops these and lets their events go: that must not happen unheard."""
        for report in self._reports.forgotten(pages):
            events = report.last_spooled - report.first_unacked + 1
            log.error("{node_id} has run {run_id} ({attempt}), of which history knows nothing; it is stopped, and {events} "
                      "events of it are let go", node_id=self.node.node_id, run_id=report.run_id, attempt=report.attempt,
                      events=events)
            self._desk.bus.tell("run_unknown", node_id=self.node.node_id, run_id=report.run_id, source=self._source,
                                attempt=report.attempt, open=report.open, events_let_go=events)

    def _spawn(self, work: Any) -> None:
        """Whatever fails here ends the link; the node comes again."""
        Deferred.fromCoroutine(work).addErrback(self._failed)

    def _failed(self, failure: Any) -> None:
        error = failure.value
        if isinstance(error, RemoteProtocolError):
            self._broken(error)
            return
        if not isinstance(error, IOPError):
            log.failure("on the link of {node_id}", failure, node_id=self.node.node_id)
        self._link.close(getattr(error, "code", "internal_error"), "The edge could not answer; come again.")

    # --- its state --------------------------------------------------------------------------------------------------

    def _config_applied(self, applied: ConfigApplied, packed: bytes) -> None:
        whole = self.node.told_config(applied)
        self._desk.bus.tell("config_applied" if whole else "config_rejected", node_id=self.node.node_id,
                            source=self._source, revision=applied.revision, faults=self.node.config_faults)

    def _node_status(self, status: NodeStatus, packed: bytes) -> None:
        same = self.node.placeable and not differ(self.node.status, status)
        self.node.told_status(status)
        self._desk.registry.changed()
        if not same:
            self._desk.bus.tell("node_status", node_id=self.node.node_id, source=self._source,
                                draining=status.draining, policy_mode=status.policy_mode,
                                targets=[f"{one.adapter}/{one.target}" for state in status.adapters
                                         for one in state.targets])
        self._desk.dispatcher.pump()

    def _command_response(self, response: NodeCommandResponse, packed: bytes) -> None:
        self._desk.answered(response.command_id, response)

    # --- its runs ---------------------------------------------------------------------------------------------------

    def _run_accepted(self, word: RunAccepted, packed: bytes) -> None:
        run = self._leased(word.run_id, word.attempt)
        if run is not None:
            self._desk.dispatcher.answered(run)

    def _run_rejected(self, word: RunRejected, packed: bytes) -> None:
        run = self._leased(word.run_id, word.attempt)
        if run is not None:
            self._desk.dispatcher.answered(run)
            self._desk.dispatcher.rejected(run, word)

    def _leased(self, run_id: str, attempt: int) -> Run | None:
        """The run that this is about; None when it is over by now."""
        run = self._desk.runs.get(run_id)
        return run if run is not None and run.leased_to(self.node.node_id, attempt) and not run.record.ended else None

    def _gather(self, batch: EventBatch, packed: bytes) -> None:
        """What one read brings of one run becomes one entry, one row and one write to each reader."""
        run_id = batch.run_id
        sheaf = self._sheaves.get(run_id)
        if sheaf is None:
            self._sheaves[run_id] = Sheaf(batch, packed)
        elif not sheaf.add(batch, packed):
            self._sheaves[run_id] = Sheaf(batch, packed)
            self._event_batch(*sheaf.whole())

    def _deliver(self) -> None:
        """Hand over what was gathered."""
        if self._sheaves:
            sheaves, self._sheaves = self._sheaves, {}
            if self.node.link is self._link:
                for sheaf in sheaves.values():
                    self._event_batch(*sheaf.whole())

    def _event_batch(self, batch: EventBatch, packed: bytes) -> None:
        run = self._desk.runs.get(batch.run_id)
        if run is None or not run.leased_to(self.node.node_id, batch.attempt) or (
                run.log.ended and batch.first_seq > run.log.last.seq):
            # No batch that is there already can come here, but one that ended long ago: look it up.
            self._spawn(self._late(batch, packed))
            return
        self._check_window(run)
        if self._desk.dispatcher.failed_over(run, batch):
            self._spawn(self._set_aside(batch, packed))
            return
        try:
            if not self._desk.runs.append(run, batch, packed):
                self._desk.acks.due(self.node.node_id, run.run_id, batch.attempt, run.committed_seq)
        except Hole as hole:
            self._ask_again(run, hole.from_seq)

    def _check_window(self, run: Run) -> None:
        """A node keeps to its window by itself; one that does not would fill this process while history is away."""
        if run.log.uncommitted_bytes > self._most_bytes:
            raise RemoteProtocolError(f"{self.node.node_id} sent {run.log.uncommitted_bytes} bytes of run {run.run_id} that "
                                      "are not acknowledged, far beyond its window.", code="too_many")

    def _ask_again(self, run: Run, from_seq: int) -> None:
        """Once for each hole: what comes until it is filled is behind the same hole."""
        if run.resend_from != from_seq:
            run.resend_from = from_seq
            log.warn("run {run_id} of {node_id}: events from {attempt}.{seq} on are missing", run_id=run.run_id,
                     node_id=self.node.node_id, attempt=run.record.attempt, seq=from_seq)
            self._link.send("resend", Resend(run_id=run.run_id, attempt=run.record.attempt, from_seq=from_seq))

    async def _late(self, batch: EventBatch, packed: bytes) -> None:
        """Events of an attempt that is closed: kept apart, and the node is told to stop it (E6). The record knows the node
        of its last attempt alone: an earlier one may have been another's, which sends again what it knows no ack of.
        """
        history, node_id = self._desk.history, self.node.node_id
        run_id, attempt, last_seq = batch.run_id, batch.attempt, batch.first_seq + len(batch.events) - 1
        run = self._desk.runs.get(run_id)
        try:
            record = run.record if run is not None else await history.run(run_id)
        except NoSuchRun:
            record = None
        if record is None or attempt > record.attempt or (attempt == record.attempt and record.node_id != node_id):
            raise RemoteProtocolError(f"{node_id} sent events of run {run_id[:40]} ({attempt}), which is not its own.")
        if last_seq > await history.committed(run_id, attempt):
            await self._desk.late.keep(batch, packed)
            self._fence(run_id, attempt)
        self._desk.acks.due(node_id, run_id, attempt, last_seq)

    async def _set_aside(self, batch: EventBatch, packed: bytes) -> None:
        """How an attempt ended whose run goes on elsewhere."""
        await self._desk.late.keep(batch, packed)
        self._desk.acks.due(self.node.node_id, batch.run_id, batch.attempt, batch.first_seq + len(batch.events) - 1)

    def _fence(self, run_id: str, attempt: int) -> None:
        if (run_id, attempt) not in self._fenced and self.node.link is self._link:
            self._fenced.add((run_id, attempt))
            self._link.send("verdicts", Verdicts(last=True, runs=[
                RunVerdict(run_id=run_id, attempt=attempt, verdict=VERDICT_FENCED)]))


# What a node may send beside event batches, by the name in the Frame; the session's table has let nothing else through.
_HANDLERS: dict[str, Callable[[NodeLink, Any, bytes], None]] = {
    "runs_report": NodeLink._runs_report,
    "config_applied": NodeLink._config_applied,
    "node_status": NodeLink._node_status,
    "node_command_response": NodeLink._command_response,
    "run_accepted": NodeLink._run_accepted,
    "run_rejected": NodeLink._run_rejected,
}
