"""The node's core: what each frame from the edge does, and what becomes of the runs.

::

    link_up      --> RunsReport: what this node has, running or un-acknowledged
    Verdicts     --> CONTINUE: send on from the committed place   CANCEL, FENCED: stop it   UNKNOWN: stop it, drop its events
    config       --> ConfigApplied, NodeStatus: from now on the edge places runs here
    RunRequest   --> record.accept, committed --> RunAccepted --> EventBatch ... one ending   (or RunRejected)

A link that is down stops nothing: events wait in the spool, and the windows hold the programs back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from zope.interface import implementer

from iop.errors import Cancelled, IOPError, NodeLost
from iop.interfaces import ILink, ILinkHandler
from iop.node.answers import answer_command
from iop.node.health import HealthWatch
from iop.node.lifecycle import Lifecycle
from iop.node.offers import Offers
from iop.node.policy import Policy
from iop.node.runs import Runs
from iop.node.spool import Spool
from iop.node.status import node_status
from iop.node.tools import Tools
from iop.proto import link_pb2, node_pb2, run_pb2

log = Logger()

REPORT_RUNS = 1000     # runs in one RunsReport
SWEEP_S = 1.0          # the time limits of all runs

# Where a link stands. READY: the verdicts are in, so that events may be sent; CONFIGURED: the edge knows what is offered.
DOWN, REPORTED, READY, CONFIGURED = range(4)


@implementer(ILinkHandler)
class NodeService(Service):
    """One node. `record` is its NodeRecord; `marker` marks the environment of its programs."""

    def __init__(self, node_id: str, *, offers: Offers, tools: Tools, record: Any, clock: IReactorTime,
                 marker: Mapping[str, str], spool: Spool, labels: Mapping[str, str] | None = None,
                 lifecycle: Lifecycle | None = None, commands: Any = None) -> None:
        self.node_id = node_id
        self.offers = offers
        self.tools = tools
        self.record = record
        self.clock = clock
        self.marker = dict(marker)
        self.spool = spool
        spool.deliver = self._send_batch
        self.draining = False
        self.suspending = False                 # another image of this process goes on with what outlives this one
        self.facts: dict[str, str] = {}
        self.load: node_pb2.MachineLoad | None = None   # as it was last worth telling
        self.own_labels = dict(labels or {})
        self.link: ILink | None = None
        self._standing = DOWN                   # of the link
        self._told: node_pb2.NodeStatus | None = None   # on this link
        self._commands = commands
        self._lifecycle = lifecycle or Lifecycle()
        self.runs = Runs(offers, tools, record, spool, clock, marker, self._send, self._closed_to_runs,
                         lambda: self._lifecycle.settled(self))
        self.health = HealthWatch(clock, lambda: offers.backends, self.tell_status)
        tools.servers.told = self._servers_changed
        self._sweep = LoopingCall(self.runs.check_limits)
        self._sweep.clock = clock

    # --- IService

    def startService(self) -> None:
        super().startService()
        self._sweep.start(SWEEP_S, now=False)
        self.health.start()
        self._lifecycle.start(self)

    def stopService(self) -> Deferred[None]:
        super().stopService()
        return Deferred.fromCoroutine(self._lifecycle.stop(self))

    def suspend(self) -> Deferred[None]:
        """Get ready for another image of this process in the same place; what is supervised runs on, for it to take up.

        No new runs; the others have 20 s to end, and are ended as node_restarted after that. Fires once the spool and
        the record are closed and Goodbye is said; stopService() may follow.
        """
        return Deferred.fromCoroutine(self._lifecycle.suspend(self))

    def stop_timers(self) -> None:
        """The last step of a stop."""
        self.health.stop()
        if self._sweep.running:
            self._sweep.stop()

    @property
    def stopping(self) -> bool:
        return not self.running

    # --- ILinkHandler

    def link_up(self, link: ILink) -> None:
        self.link, self._standing, self._told = link, REPORTED, None
        self.spool.windows.set(link.limits.run_window_bytes, link.limits.link_window_bytes)
        reports = [link_pb2.RunReport(run_id=run_id, attempt=attempt, first_unacked=box.first_unacked,
                                      last_spooled=box.last_seq, open=box.open)
                   for (run_id, attempt), box in self.spool.boxes()]
        for first in range(0, len(reports) or 1, REPORT_RUNS):
            link.send("runs_report", link_pb2.RunsReport(runs=reports[first:first + REPORT_RUNS],
                                                         last=first + REPORT_RUNS >= len(reports)))

    def frame_received(self, link: ILink, kind: str, message: Any, packed: bytes) -> None:
        handler = HANDLERS.get(kind)
        if handler is not None and link is self.link:
            handler(self, message)

    def read_finished(self, link: ILink) -> None:
        """Events go out as they arise; nothing waits for the end of a read."""

    def link_down(self, link: ILink, reason: IOPError) -> None:
        if link is self.link:
            self.link, self._standing = None, DOWN
            self._lifecycle.settled(self)

    # --- what is unacknowledged

    def _verdicts(self, verdicts: link_pb2.Verdicts) -> None:
        for verdict in verdicts.runs:
            self._verdict(verdict)
        if verdicts.last and self._standing < READY:
            self._standing = READY
            for (run_id, attempt), _ in self.spool.boxes():
                self._send_from(run_id, attempt, 1)
        self._lifecycle.settled(self)

    def _verdict(self, verdict: link_pb2.RunVerdict) -> None:
        key = verdict.run_id, verdict.attempt
        run = self.runs.get(key)
        if verdict.verdict == link_pb2.VERDICT_UNKNOWN:
            self.spool.drop(*key)
        else:
            if run is not None and verdict.committed_seq > self.spool.last_seq(*key):
                run.spool_behind(verdict.committed_seq)
            self.spool.acknowledged(*key, verdict.committed_seq)
        if run is not None and verdict.verdict != link_pb2.VERDICT_CONTINUE:
            log.warn("run {run_id}: the edge says {verdict}; stopping it", run_id=verdict.run_id,
                     verdict=link_pb2.Verdict.Name(verdict.verdict))
            run.stop(Cancelled() if verdict.verdict == link_pb2.VERDICT_CANCEL else
                     NodeLost("The edge had closed this attempt when the node came back."))

    def _acknowledged(self, ack: run_pb2.EventAck) -> None:
        if ack.through_seq > self.spool.last_seq(ack.run_id, ack.attempt):
            self._hang_up(f"The edge acknowledged event {ack.through_seq} of run {ack.run_id}, which it was not sent.")
            return
        self.spool.acknowledged(ack.run_id, ack.attempt, ack.through_seq)
        self._lifecycle.settled(self)

    def _resend(self, asked: run_pb2.Resend) -> None:
        """What is gone cannot be sent; the report of a new link tells the edge so, and it ends the run."""
        if asked.from_seq < self.spool.first_unacked(asked.run_id, asked.attempt):
            self._hang_up(f"The edge asks for event {asked.from_seq} of run {asked.run_id}, which it has acknowledged.")
            return
        self._send_from(asked.run_id, asked.attempt, asked.from_seq)

    def _send_from(self, run_id: str, attempt: int, seq: int) -> None:
        for packed in self.spool.pending_from(run_id, attempt, seq):
            self._send_batch(packed)

    def _send_batch(self, packed: bytes) -> None:
        if self.link is not None and self._standing >= READY:
            self.link.send_packed("event_batch", packed)

    def _hang_up(self, reason: str) -> None:
        log.error("{reason}", reason=reason)
        if self.link is not None:
            self.link.close("protocol_violation", reason)

    def _send(self, kind: str, message: Any) -> None:
        if self.link is not None and self._standing >= READY:
            self.link.send(kind, message)

    # --- configuration and status

    def _configure(self, payload: node_pb2.NodeConfigPayload) -> None:
        self._send("config_applied", self.offers.apply(payload))
        self.tools.servers.configured(self.offers.servers())
        self.health.check_new().addCallback(self._configured_on, self.link)

    def _configured_on(self, _: None, link: ILink) -> None:
        if link is not self.link or self._standing < READY:
            return
        self._standing = CONFIGURED
        self._told = None
        self.tell_status()
        self._lifecycle.configured(link)

    def policy_changed(self, policy: Policy) -> None:
        """The owner's file was read again: everything is judged anew; what runs goes on."""
        self.tools.policy = policy
        applied = self.offers.judge_again()
        if self._standing == CONFIGURED:
            self.tools.servers.configured(self.offers.servers())
            self._send("config_applied", applied)
        self.health.check_new().addCallback(lambda _: self.tell_status())

    def status(self) -> node_pb2.NodeStatus:
        return node_status(self.offers.backends, self.health, self.tools.servers, policy_mode=self.tools.policy.mode,
                           draining=self.draining or self.stopping, labels={**self.offers.labels, **self.own_labels},
                           facts=self.facts, load=self.load)

    def tell_status(self) -> None:
        """Tell the edge, if it differs from what was told."""
        if self._standing == CONFIGURED:
            status = self.status()
            if status != self._told:
                self._told = status
                self._send("node_status", status)

    def _servers_changed(self) -> None:
        """Of one that is ready now, its adapter finds out more."""
        for backend in self.offers.backends.values():
            targets = [target for target in backend.targets.values() if target.server is not None]
            if any(self.tools.servers.state(target.server) == "warm" and not self.health.of(backend, target.name).warm
                   for target in targets):
                self.health.look(backend)
        self.tell_status()

    def load_changed(self, load: node_pb2.MachineLoad) -> None:
        self.load = load
        self.tell_status()

    def drain(self, draining: bool) -> None:
        self.draining = draining
        self.tell_status()

    def _closed_to_runs(self) -> str:
        """Why no new run is taken on; empty when it is."""
        if self.stopping:
            return "This node is stopping."
        return "This node is draining and takes no new runs." if self.draining else ""

    # --- commands

    def _command(self, request: node_pb2.NodeCommandRequest) -> None:
        link = self.link

        def answered(response: node_pb2.NodeCommandResponse) -> None:
            if link is self.link:
                self._send("node_command_response", response)

        answer_command(self._commands, self, request, self.clock).addCallback(answered)


HANDLERS: dict[str, Callable[[NodeService, Any], None]] = {
    "verdicts": NodeService._verdicts,
    "node_config_payload": NodeService._configure,
    "run_request": lambda node, request: node.runs.requested(request),
    "cancel_request": lambda node, asked: node.runs.cancel(asked),
    "run_input": lambda node, given: node.runs.give_input(given),
    "event_ack": NodeService._acknowledged,
    "resend": NodeService._resend,
    "node_command_request": NodeService._command,
}
