"""From accepted to sent: where each run goes, when, and what happens when its node does not take it.

::

    accept --> placed, stored --> sent
       |          ^      |
       v          |      v  (the node refused it or was gone before it was sent, or its backend failed in silence)
     queued, stored <----+
       |
       +--> ended by the edge: cancelled, queue_timeout, no_node

`placed` is in history before a RunRequest is sent, so that after a crash nobody starts a run twice.
"""

from __future__ import annotations

import copy
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from iop.edge.bus import EDGE, Bus
from iop.edge.firstreports import FirstReports
from iop.edge.node import Node
from iop.edge.orders import ANSWER_S, Orders
from iop.edge.placement import Choice, Place
from iop.edge.queue import RunQueue
from iop.edge.refusals import MAX_REFUSALS
from iop.edge.registry import Registry
from iop.edge.run import Run
from iop.edge.runs import Runs
from iop.edge.slots import Slots
from iop.edge.submit import check_repeated
from iop.edge.waiting import Waiting
from iop.errors import Cancelled, IOPError, NodeRestarted, NoSuchTarget
from iop.events import now_us, outcome_of
from iop.link.errors import LocalProtocolError
from iop.proto.run_pb2 import EventBatch, Outcome, RunRejected, RunRequest, Source
from iop.records import RunRecord

REFUSED_S = 1.0                  # a node that refused a run is not asked again for this long
FAILED_S = 10.0                  # nor one whose backend failed before it said anything
STORE_AGAIN_S = 1.0              # when history did not take a placement

log = Logger()


class Dispatcher:
    """Places runs, and lets go of slots."""

    def __init__(self, history: Any, runs: Runs, registry: Registry, slots: Slots, queue: RunQueue, bus: Bus,
                 clock: Any) -> None:
        self._history = history
        self._runs = runs
        self._registry = registry
        self._slots = slots
        self._waiting = Waiting(queue, slots, bus, clock, runs.fail)
        self._bus = bus
        self._clock = clock
        self._orders = Orders(registry, bus, clock, self._not_answered)
        self._reports = FirstReports(registry, clock, self.pump)
        self._stopped = False

    # --- accepting --------------------------------------------------------------------------------------------------

    def accept(self, record: RunRecord, request: RunRequest) -> Deferred[RunRecord]:
        """Store a new run, placed or queued, in one commit, and send it when it is placed.

        Fires with the record stored, an earlier one for a used idempotency key. Raises NoSuchTarget and QueueFull, fails
        with Conflict and HistoryUnavailable; then nothing is left of it.
        """
        choice = self._slots.choose(record, request)
        node = self._registry.get(choice.node_id) if choice.node_id else None
        link = node.link if node is not None else None
        if node is None:
            self._waiting.hold(record.principal)
            record.state, record.node_id = "queued", record.pin
        else:
            self._slots.take(node, choice, record, request)
        created: Deferred[RunRecord] = self._history.create_run(record)
        return created.addCallbacks(self._created, self._not_created, callbackArgs=(node, link, choice, record, request),
                                    errbackArgs=(node, record))

    def _not_created(self, failure: Failure, node: Node | None, record: RunRecord) -> Failure:
        self._give_back(node, record)
        return failure

    def _created(self, stored: RunRecord, node: Node | None, link: Any, choice: Choice, record: RunRecord,
                 request: RunRequest) -> RunRecord:
        if stored.run_id != record.run_id:
            self._give_back(node, record)
            check_repeated(stored, record, request)
            earlier = self._runs.get(stored.run_id)
            return copy.copy(earlier.record) if earlier is not None else stored
        run = self._runs.add(record, request)
        if node is None:
            self._waiting.release(record.principal)
            self._waiting.add(run, choice.obstacle)
            self.pump()
        else:
            self._send(run, link)
        return copy.copy(record)

    def _give_back(self, node: Node | None, record: RunRecord) -> None:
        if node is None:
            self._waiting.release(record.principal)
        elif self._slots.release(record):
            self.pump()

    # --- sending ----------------------------------------------------------------------------------------------------

    def _send(self, run: Run, link: Any) -> None:
        """Its placement is stored: send it, unless it was cancelled or its node has gone meanwhile."""
        if run.record.ended:
            return
        if run.cancelling:
            self._runs.end(run, "cancelled", outcome_of(Cancelled()))
            return
        node = self._registry.known(run.record.node_id)
        if node.link is not link or not node.placeable:
            self.requeue(run)
            return
        self._order(run, node, link)

    def send_again(self, run: Run, link: Any) -> None:
        """Its node came back without it, before any event: the order was lost, or else the node's record refuses it (N5)."""
        self._runs.note(run, state="placed")
        self._order(run, self._registry.known(run.record.node_id), link)

    def _order(self, run: Run, node: Node, link: Any) -> None:
        try:
            self._orders.send(run, node, link)
        except LocalProtocolError:       # the link does not take orders any more
            self._keep_from(run, node.node_id, REFUSED_S)
            self.requeue(run)
        except IOPError as error:
            self._runs.fail(run, error)

    def answered(self, run: Run) -> None:
        """Its node has said that it carries it out."""
        if run not in self._waiting:
            run.forget_deadline()

    def _not_answered(self, run: Run, node: Node, error: IOPError) -> None:
        self._orders.stop(run, EDGE, error.message)
        run.refusals.keep_from(node.node_id, self._clock.seconds() + ANSWER_S)
        self.again_or_fail(run, error)

    # --- waiting ----------------------------------------------------------------------------------------------------

    def resume(self, run: Run) -> None:
        """Take up a run that was queued before the edge started again; it is placed once all nodes have reported."""
        self._waiting.add(run)
        self._reports.begin()

    def reported(self) -> None:
        """One more node has told what it carries out."""
        self._reports.came()

    def with_node(self, run: Run) -> None:
        """Take up a run that was, or may have been, with a node then: that node's report will tell."""
        run.sent = True
        self._slots.hold(self._registry.known(run.record.node_id), run.record)

    def pump(self) -> None:
        """Place what can be placed now, in fair turns; a run that cannot does not hold up those behind it."""
        if self._stopped or self._reports.awaited or not len(self._waiting):
            return
        walk, now = self._waiting.walk(), self._clock.seconds()
        while (run := walk.next()) is not None:
            refused = run.refusals.standing(now)
            try:
                choice = self._slots.choose(run.record, run.request, refused)
            except NoSuchTarget:             # it was there; it may come back until the deadline
                choice = Choice()
            except IOPError as error:
                self._waiting.leave(run)
                self._runs.fail(run, error)
                continue
            if choice.node_id:
                self._place(run, self._registry.known(choice.node_id), choice)
            elif refused or run.request.session_id:
                walk.passed(run)
            else:
                walk.stuck(run)

    def _place(self, run: Run, node: Node, choice: Choice) -> None:
        self._waiting.placed(run)
        self._slots.take(node, choice, run.record, run.request)
        link, record = node.link, run.record
        changes = {"state": "placed", "node_id": node.node_id, "attempt": record.attempt, "placed_us": record.placed_us,
                   "placement": record.placement}
        if record.alias:
            changes |= {"adapter": record.adapter, "target": record.target}
        stored = self._runs.change(run, **changes)
        stored.addCallbacks(lambda _: self._send(run, link), lambda failure: self._not_stored(run, failure))
        stored.addErrback(lambda failure: log.failure("placing run {run_id}", failure, run_id=run.run_id))

    def _not_stored(self, run: Run, failure: Any) -> None:
        log.warn("run {run_id} waits: {trouble}", run_id=run.run_id, trouble=failure.getErrorMessage())
        self._unplace(run)
        self._clock.callLater(STORE_AGAIN_S, self.pump)

    # --- coming back ------------------------------------------------------------------------------------------------

    def _unplace(self, run: Run, obstacle: IOPError | None = None) -> None:
        """Back into the queue, without its slot."""
        self._slots.release(run.record)
        run.sent = False
        self._runs.note(run, state="queued", node_id=run.record.pin)
        self._waiting.add(run, obstacle)

    def requeue(self, run: Run) -> None:
        """Its node certainly has not begun it: let it wait for another, or end it when that was asked."""
        if run.cancelling:
            self._runs.end(run, "cancelled", outcome_of(Cancelled()))
            return
        self._unplace(run)
        self.pump()

    def adopt(self, run: Run, node_id: str, attempt: int) -> None:
        """It waits here, and is under way there: history was set back to before its placement."""
        self._waiting.leave(run)
        self._slots.keep(self._registry.known(node_id), run.record, run.request)
        run.sent = True
        self._runs.note(run, state="placed", node_id=node_id, attempt=attempt, placed_us=run.record.placed_us or now_us())

    def again_or_fail(self, run: Run, error: IOPError) -> None:
        """Its node has lost it: a new attempt before the first output and where that is safe, else the end (G5)."""
        if run.cancelling or (run.silent and run.may_start_over):
            run.refusals.count += 1
            self.requeue(run)
        else:
            self._runs.fail(run, error)

    def rejected(self, run: Run, word: RunRejected) -> None:
        """The node does not take it: another try when that may help, else it ends with the node's code."""
        run.refusals.count += 1
        if run.cancelling or word.code == NodeRestarted.code:    # which means that it may have begun
            self.again_or_fail(run, NodeRestarted(word.message))
        elif word.retryable and run.refusals.count <= MAX_REFUSALS:
            self._keep_from(run, run.record.node_id, REFUSED_S)
            self._unplace(run)
            self.pump()
        else:
            self._runs.end(run, "failed", Outcome(code=word.code, message=word.message, retryable=word.retryable))

    def failed_over(self, run: Run, batch: EventBatch) -> bool:
        """Whether another place carries it out instead of the one whose backend has failed: while another node, or another
        target of its alias, is ready for it. Else the words of the backend are the answer."""
        if not run.may_fail_over(batch):
            return False
        place = run.record.node_id, (run.record.adapter, run.record.target)
        if not self._slots.elsewhere(run.record, run.request, {place} | run.refusals.standing(self._clock.seconds())):
            return False
        run.refusals.count += 1
        self._keep_from(run, place, FAILED_S)
        self._bus.tell("run_failed_over", node_id=run.record.node_id, run_id=run.run_id, source=run.request.source,
                       adapter=run.record.adapter, target=run.record.target, attempt=run.record.attempt,
                       reason=batch.events[-1].failed.message)
        self.answered(run)
        self._runs.note(run, started_us=0)
        self.requeue(run)
        return True

    def _keep_from(self, run: Run, place: str | Place, seconds: float) -> None:
        """Do not ask that place for so long; then what waits may go there."""
        run.refusals.keep_from(place, self._clock.seconds() + seconds)
        self._clock.callLater(seconds, self.pump)

    def position(self, run: Run) -> int:
        """From 1, among those that wait for the same; 0 when it does not wait."""
        return self._waiting.position(run)

    def cancel(self, run: Run, source: Source, reason: str) -> Deferred[None]:
        """Ask for its end, wherever it is. Idempotent; fires when that is stored, to outlive a restart, and never fails."""
        if run.record.ended:
            return succeed(None)
        if self._waiting.leave(run):
            self._runs.end(run, "cancelled", outcome_of(Cancelled(reason)))
            return succeed(None)
        asked = self._runs.note(run, cancel_us=run.record.cancel_us or now_us())
        self._orders.stop(run, source, reason)
        return asked

    def refused(self, run: Run, error: IOPError) -> None:
        """History can never have what it did: stop it where it runs, and end it because of `error`."""
        self._orders.stop(run, EDGE, error.message)
        self._runs.fail(run, error)

    def ended(self, run: Run, outcome: Outcome) -> None:
        """It has ended, whoever ended it: its slot is free."""
        self._waiting.leave(run)
        run.forget_deadline()
        self._bus.tell("run_ended", node_id=run.record.node_id, run_id=run.run_id, source=run.request.source,
                       state=run.record.state, code=outcome.code, adapter=run.record.adapter, target=run.record.target,
                       **run.record.figures())
        if self._slots.release(run.record):
            self.pump()

    def stop(self) -> None:
        """Place nothing more."""
        self._stopped = True
        self._reports.stop()
        self._waiting.stop()
        for run in self._runs:
            run.forget_deadline()
