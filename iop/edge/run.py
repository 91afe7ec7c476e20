"""One run that has not ended, as the edge holds it."""

from __future__ import annotations

from typing import Any

from iop.edge.refusals import Refusals
from iop.edge.runlog import RunLog
from iop.events import failed_in_silence
from iop.proto.run_pb2 import EventBatch, RunRequest
from iop.records import RunRecord


class Run:
    """One run that has not ended. `record` is its row as it is now; history follows."""

    __slots__ = ("arrival", "clients", "deadline", "instance", "log", "record", "refusals", "request",
                 "resend_from", "sent", "since_s", "takes_input", "when_stored")

    def __init__(self, record: RunRecord, request: RunRequest, run_log: RunLog, arrival: int, since_s: float) -> None:
        self.arrival = arrival                    # which one it is in this process: the order of the queue
        self.since_s = since_s                    # clock time of its creation, unlike created_us, which a clock's step moves
        self.record = record
        self.request = request
        self.log = run_log
        self.sent = False                         # its RunRequest is, or may be, with its node
        self.deadline: Any = None                 # IDelayedCall: of its place in the queue, then of its node's answer
        self.refusals = Refusals()
        self.resend_from = 0                      # the hole that its node was asked to fill
        self.takes_input: bool | None = None      # its target's word when it was sent; None when that is not known
        self.clients = 0                          # that it is for and that are here
        self.when_stored: list[Any] = []          # Deferreds that fire once it has ended and history has all of it
        self.instance = ""                        # the start of its node that is known to have had it

    @property
    def run_id(self) -> str:
        return self.record.run_id

    @property
    def cancelling(self) -> bool:
        """Somebody has asked for its end."""
        return self.record.cancel_us != 0

    @property
    def silent(self) -> bool:
        """No event of this attempt has come."""
        return self.log.last.attempt < self.record.attempt or not self.log.last.seq

    @property
    def has_shown_nothing(self) -> bool:
        """No output of it has come. Of what came to an earlier start of the edge, that is not known."""
        return self.silent or (self.log.floor.attempt < self.record.attempt and not self.record.first_output_us)

    @property
    def may_start_over(self) -> bool:
        """One more attempt does no harm, and is not one too many."""
        return self.request.retry_safe and not self.refusals.exhausted

    @property
    def committed_seq(self) -> int:
        """How far history has its present attempt; 0 when nothing of it."""
        return self.log.committed.seq if self.log.committed.attempt == self.record.attempt else 0

    @property
    def last_seq(self) -> int:
        """How far its present attempt has come, committed or not; 0 when nothing of it."""
        return self.log.last.seq if self.log.last.attempt == self.record.attempt else 0

    def goes_on_with(self, batch: EventBatch) -> bool:
        """Whether its events stand right behind those that are here, or overlap them."""
        return batch.first_seq <= self.last_seq + 1 < batch.first_seq + len(batch.events) and not self.log.ended

    def may_fail_over(self, batch: EventBatch) -> bool:
        """Whether another place may carry it out instead, now that all its node has to say of it is that its backend failed:
        where the failure says that trying again may help, and its clients have been shown nothing."""
        return (failed_in_silence(batch) and self.has_shown_nothing and self.goes_on_with(batch) and not self.cancelling
                and self.may_start_over)

    def leased_to(self, node_id: str, attempt: int) -> bool:
        return self.sent and self.record.node_id == node_id and self.record.attempt == attempt

    def forget_deadline(self) -> None:
        """What it had to wait for has come, or does not matter any more."""
        if self.deadline is not None and self.deadline.active():
            self.deadline.cancel()
        self.deadline = None

    def order(self) -> RunRequest:
        """The RunRequest that its node is sent."""
        order = RunRequest()
        order.CopyFrom(self.request)
        order.attempt = self.record.attempt
        return order
