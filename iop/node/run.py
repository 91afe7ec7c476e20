"""One execution: its events numbered, its limits kept, and exactly one ending, whatever the adapter does.

::

    waiting --start--> running --stop(error)--> stopping    (for as long as the execution says it may take)
       |                  |                        |
       +---stop-----------+------------------------+--> ended   (once; nothing is emitted after it)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from iop import events
from iop.errors import AdapterError, Cancelled, IdleTimeout, InvalidRequest, IOPError, OutputLimit, RunTimeout
from iop.interfaces import IAdapter, IExecution, IRunSink, ITakesInput
from iop.proto import run_pb2
from iop.proto.run_pb2 import EventBatch, Outcome, RuntimeEvent
from iop.runs import ExecutionSpec

log = Logger()

BATCH_EVENTS = 1000         # the link's cap
EVENT_BYTES = 32 * 1024 * 1024  # of one output; what the link carries, with room for what surrounds it
BATCH_BYTES = 1024 * 1024   # what travels as one payload, but for a single event that is larger


class RunKeeper(Protocol):
    """What a run tells: the service."""

    def batch_emitted(self, run: Run, batch: EventBatch) -> None: ...

    def run_ended(self, run: Run, kind: str, outcome: Outcome) -> None: ...


@implementer(IRunSink)
class Run:
    """One attempt of a run on this node."""

    def __init__(self, spec: ExecutionSpec, adapter: IAdapter, keeper: RunKeeper, clock: IReactorTime,
                 policy_mode: Callable[[], str] = lambda: "") -> None:
        self.spec = spec
        self.key = (spec.run_id, spec.attempt)
        self.adapter = adapter
        self.state = "waiting"
        self._keeper = keeper
        self._clock = clock
        self._policy_mode = policy_mode
        self._execution: IExecution | None = None
        self._stopped_by: IOPError | None = None
        self._stopped_at = 0.0
        self._seq = 0
        self._bytes = 0
        self._digest = hashlib.sha256()
        self._dropped: dict[int, int] = {}    # bytes over the output limit, by channel
        self._paused = False
        self._accepted_at = clock.seconds()
        self._started_at: float | None = None
        self._output_at: float | None = None  # the first output
        self._heard_at = self._accepted_at    # the latest event
        self._resumed_at = 0.0
        self._is_program = False

    # --- what the service asks

    def start(self) -> None:
        """Have the adapter carry it out; ends at once when it was stopped before."""
        if self.state != "waiting":
            return
        self.state = "running"
        self._heard_at = self._clock.seconds()
        try:
            self._execution = self.adapter.execute(self.spec, self)
            finished = self._execution.finished
        except Exception:
            self._adapter_failed(Failure())
            return
        if self._paused:
            self._execution.pauseProducing()
        if self._stopped_by is not None:
            self._execution.stop(self._stopped_by)
        finished.addCallbacks(self._finished, self._adapter_failed)
        finished.addErrback(self._ending_failed)

    def stop(self, error: IOPError) -> None:
        """End it because of `error`; the first reason counts, but a cancel counts above a limit."""
        if self.state == "ended":
            return
        if self._stopped_by is None or (isinstance(error, Cancelled) and not isinstance(self._stopped_by, Cancelled)):
            self._stopped_by = error
        if self.state == "waiting":
            self._end("failed", Outcome())
        elif self.state == "running":
            self.state = "stopping"
            self._stopped_at = self._clock.seconds()
            if self._execution is not None:
                self._execution.stop(error)

    def give_input(self, data: bytes, end: bool) -> None:
        """Raises InvalidRequest when it takes none."""
        if self.state != "running" or not ITakesInput.providedBy(self._execution):
            raise InvalidRequest("This run takes no input now.")
        ITakesInput(self._execution).write(data, end)

    def pause(self) -> None:
        """Too much of it is un-acknowledged."""
        self._paused = True
        if self._execution is not None and self.state != "ended":
            self._execution.pauseProducing()

    def resume(self) -> None:
        self._paused = False
        self._resumed_at = self._clock.seconds()
        if self._execution is not None and self.state != "ended":
            self._execution.resumeProducing()

    def check_limits(self, now: float) -> None:
        """Called once a second. A run that is held back is not silent by its own fault."""
        if self.state == "stopping" and self._execution is not None:
            if now - self._stopped_at >= self._execution.stop_s:
                self._give_up()
        if self.state != "running":
            return
        limits = self.spec.limits
        begun = self._accepted_at if self._started_at is None else self._started_at
        if limits.run_s and now - begun >= limits.run_s:
            self.stop(RunTimeout(f"The run took longer than its limit of {limits.run_s:g} s."))
        elif self._paused:
            return
        elif self._output_at is None:
            if limits.first_output_s and now - max(begun, self._resumed_at) >= limits.first_output_s:
                self.stop(IdleTimeout(f"No output came within {limits.first_output_s:g} s of the start."))
        elif limits.silence_s and now - max(self._heard_at, self._resumed_at) >= limits.silence_s:
            self.stop(IdleTimeout(f"Nothing came for {limits.silence_s:g} s, the run's limit of silence."))

    # --- IRunSink

    def emit(self, happened: Sequence[RuntimeEvent]) -> None:
        if self.state == "ended" or not happened:
            return
        self._heard_at = self._clock.seconds()
        kept = [event for event in happened if self._count(event)]
        for batch in _batches(kept):
            self._send(batch)
        if self._dropped and self._stopped_by is None:
            self.stop(OutputLimit(f"The run produced more than its limit of {self.spec.limits.output_bytes} bytes, or more "
                                  f"than {EVENT_BYTES} at once."))

    def _count(self, event: RuntimeEvent) -> bool:
        """Take an event into the totals; False when it is not to be kept."""
        kind = event.WhichOneof("kind")
        if kind == "output":
            data = event.exact or event.output.encode("utf-8", "surrogatepass")
            if (self._dropped or self._bytes + len(data) > self.spec.limits.output_bytes > 0
                    or len(data) + len(event.raw) > EVENT_BYTES):
                self._dropped[event.channel] = self._dropped.get(event.channel, 0) + len(data)
                return False
            self._bytes += len(data)
            self._digest.update(data)
            if self._output_at is None:
                self._output_at = self._heard_at
        elif kind == "started":
            self._started_at = self._heard_at
            self._is_program = event.started.pid != 0
            event.started.policy_mode = self._policy_mode()
        elif kind in events.ENDING_KINDS:
            log.error("run {run_id}: the adapter {adapter} emitted an ending; it is left out", run_id=self.spec.run_id,
                      adapter=self.spec.adapter)
            return False
        return True

    def _send(self, batch_events: list[RuntimeEvent]) -> None:
        batch = EventBatch(run_id=self.spec.run_id, attempt=self.spec.attempt, first_seq=self._seq + 1, events=batch_events)
        self._seq += len(batch_events)
        self._keeper.batch_emitted(self, batch)

    # --- the ending

    def _finished(self, result: Any) -> None:
        try:
            kind, outcome = result
            if kind not in events.ENDING_KINDS or not isinstance(outcome, Outcome):
                raise ValueError(f"not an ending: {kind!r}")
        except (TypeError, ValueError):
            self._adapter_failed(Failure())
            return
        self._end(kind, outcome)

    def _adapter_failed(self, failure: Failure) -> None:
        if isinstance(failure.value, IOPError):
            self._end("failed", events.outcome_of(failure.value))
            return
        log.failure("run {run_id}: the adapter {adapter} failed", failure, run_id=self.spec.run_id, adapter=self.spec.adapter)
        self._end("failed", events.outcome_of(AdapterError(
            f"The adapter {self.spec.adapter} failed; the node's log has the details under this run.")))

    def _give_up(self) -> None:
        """The adapter does not come to an end: whoever waits for the run, and its slot, must not wait for ever."""
        log.error("run {run_id}: the adapter {adapter} has not ended it {seconds:.0f} s after a stop; it ends without "
                  "that, and what it started may still be running", run_id=self.spec.run_id, adapter=self.spec.adapter,
                  seconds=self._clock.seconds() - self._stopped_at)
        self._end("failed", Outcome(processes_left=-1) if self._is_program else Outcome())

    def _ending_failed(self, failure: Failure) -> None:
        log.failure("run {run_id}: telling its ending failed", failure, run_id=self.spec.run_id)

    def _end(self, kind: str, outcome: Outcome) -> None:
        if self.state == "ended":
            return
        kind = self._own_reason(kind, outcome)
        if kind == "completed" and not outcome.code:
            outcome.code = "ok"
        if self._dropped:
            self._send([RuntimeEvent(at_us=events.now_us(), truncated=run_pb2.Truncated(channel=channel, dropped_bytes=count))
                        for channel, count in sorted(self._dropped.items())])
        outcome.totals.CopyFrom(run_pb2.Totals(events=self._seq, bytes=self._bytes, digest=self._digest.digest()))
        self.state = "ended"
        self._execution = None
        self._send([events.ending(kind, outcome)])
        self._keeper.run_ended(self, kind, outcome)

    def _own_reason(self, kind: str, outcome: Outcome) -> str:
        """An ending that was asked for is told as such, whatever the program says; its own words are kept beside it."""
        error = self._stopped_by
        if error is None:
            return kind
        outcome.code, outcome.message, outcome.retryable = error.code, error.message, error.retryable
        return "cancelled" if isinstance(error, Cancelled) else "failed"


def _batches(kept: list[RuntimeEvent]) -> Iterator[list[RuntimeEvent]]:
    """Mostly one; weighed only when there are many, or large ones."""
    if len(kept) == 1:
        yield kept
        return
    batch: list[RuntimeEvent] = []
    size = 0
    for event in kept:
        weight = event.ByteSize()
        if batch and (len(batch) == BATCH_EVENTS or size + weight > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += weight
    if batch:
        yield batch
