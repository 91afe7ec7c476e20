"""One execution: its events numbered, its limits kept, and exactly one ending, whatever the adapter does.

::

    waiting --start, take_up--> running --stop(error)--> stopping    (for as long as the execution says it may take)
       |                          |  |                     |
       |                          |  +------detach---------+--> detached    (another start of the node takes it up)
       +---stop-------------------+------------------------+--> ended       (once; nothing is emitted after it)

What is emitted in one turn of the reactor becomes one entry of the spool, its ending with it. An ending is told to the keeper
once the spool has it on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from iop import events
from iop.errors import AdapterError, Cancelled, InvalidRequest, IOPError, OutputLimit, SpoolCorrupt
from iop.interfaces import IAdapter, IExecution, IOutlives, IResumes, IRunSink, ITakesInput
from iop.node.box import Kept
from iop.node.deadlines import Times, passed
from iop.node.tally import BATCH_BYTES, EVENT_BYTES, Tally
from iop.proto.run_pb2 import Outcome, RuntimeEvent
from iop.proto.spool_pb2 import SpoolEntry
from iop.runs import ExecutionSpec

log = Logger()


class RunKeeper(Protocol):
    """What a run tells: the service."""

    def emits(self, run: Run) -> None:
        """Have its `pack` called at the end of this turn."""

    def emitted(self, run: Run, batches: Sequence[Kept], payload: bytes, mark: bytes, ended: bool) -> None:
        """To the spool with it."""

    def run_ended(self, run: Run, kind: str, outcome: Outcome) -> None:
        """The spool has its ending."""


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
        self._ending: tuple[str, Outcome] | None = None
        self._tally = Tally(spec.run_id, spec.attempt, spec.limits.output_bytes)
        self._waiting: list[RuntimeEvent] = []   # emitted in this turn
        self._mark = b""                         # behind them
        self._paused = False
        self._times = Times(clock.seconds())

    # --- what the service asks

    def start(self) -> None:
        """Have the adapter carry it out; ends at once when it was stopped before."""
        if self.state == "waiting":
            self._begin(lambda: self.adapter.execute(self.spec, self))

    def take_up(self, entry: SpoolEntry | None, accepted_us: int) -> None:
        """Go on with what an earlier start of the node began and has in its spool (None: nothing yet)."""
        if entry is not None:
            self._tally.go_on(entry)
            self._times.started = self._past(entry.started_us)
            self._times.output = self._past(entry.output_us)
            if entry.HasField("stopped"):
                self._stopped_by = _error_of(entry.stopped)
        self._tally.entry.accepted_us = accepted_us
        self._times.accepted = self._past(accepted_us) or self._times.accepted
        mark = self._tally.entry.mark
        self._begin(lambda: IResumes(self.adapter).resume(self.spec, self, mark))
        if self.state == "running":
            if self._stopped_by is not None:
                self.stop(self._stopped_by)
            else:
                self._check_output()

    def _past(self, at_us: int) -> float | None:
        """A Unix time on this process's clock; None for not yet."""
        return self._clock.seconds() - max(0, events.now_us() - at_us) / 1e6 if at_us else None

    def _begin(self, begin: Callable[[], IExecution]) -> None:
        self.state = "running"
        self._times.heard = self._clock.seconds()
        try:
            self._execution = begin()
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
        if self.state in ("ended", "detached"):
            return
        if self._stopped_by is None or (isinstance(error, Cancelled) and not isinstance(self._stopped_by, Cancelled)):
            self._stopped_by = error
        if self.state == "waiting":
            self._end("failed", Outcome())
        elif self.state == "running":
            self.state = "stopping"
            self._stopped_at = self._clock.seconds()
            if self.outlives:
                self.pack()
                self._tally.entry.stopped.CopyFrom(events.outcome_of(self._stopped_by))
                self._keeper.emitted(self, (), self.place(), b"", False)
            if self._execution is not None:
                self._execution.stop(error)

    def give_input(self, data: bytes, end: bool) -> None:
        """Raises InvalidRequest when it takes none."""
        if self.state != "running" or not ITakesInput.providedBy(self._execution):
            raise InvalidRequest("This run takes no input now.")
        ITakesInput(self._execution).write(data, end)

    @property
    def outlives(self) -> bool:
        """Whether another start of the node can go on with it."""
        return IOutlives.providedBy(self._execution)

    def detach(self) -> None:
        """Leave it to another start of the node."""
        self.state = "detached"
        if self._execution is not None:
            self._execution.pauseProducing()

    def spool_behind(self, committed_seq: int) -> None:
        """The edge has events that the spool has lost: it cannot be gone on with, and ends behind those."""
        self._tally.seq = max(self._tally.seq, committed_seq)
        self.stop(SpoolCorrupt("The spool of the node ends before what the edge has of this run."))

    def check_limits(self, now: float) -> None:
        """Called once a second. A run that is held back is neither silent nor slow to end by its own fault."""
        if self.state == "stopping" and self._execution is not None and not self._paused:
            if now - max(self._stopped_at, self._times.resumed) >= self._execution.stop_s:
                self._give_up()
        if self.state != "running":
            return
        error = passed(self.spec.limits, self._times, now, self._paused)
        if error is not None:
            self.stop(error)

    # --- Spooled

    def pause(self) -> None:
        self._paused = True
        if self._execution is not None and self.state != "ended":
            self._execution.pauseProducing()

    def resume(self) -> None:
        self._paused = False
        self._times.resumed = self._clock.seconds()
        if self._execution is not None and self.state in ("running", "stopping"):
            self._execution.resumeProducing()

    def kept(self, mark: bytes) -> None:
        if self._ending is not None:
            ending, self._ending = self._ending, None
            self._keeper.run_ended(self, *ending)
        elif mark and self.outlives:
            IOutlives(self._execution).kept(mark)

    def place(self) -> bytes:
        self.pack()
        return self._tally.place()

    def pack(self) -> None:
        if self._waiting:
            (waiting, mark), self._waiting, self._mark = (self._waiting, self._mark), [], b""
            batches = self._tally.pack(waiting)
            self._keeper.emitted(self, batches, self._tally.place(batches, mark), mark, False)

    # --- IRunSink

    def emit(self, happened: Sequence[RuntimeEvent], mark: bytes = b"") -> None:
        if self.state in ("ended", "detached") or not happened:
            return
        self._times.heard = self._clock.seconds()
        kept = self._tally.take(happened, self._takes)
        if self._tally.has_output and self._times.output is None:
            self._times.output = self._times.heard
            self._tally.entry.output_us = events.now_us()
        if kept:
            if not self._waiting:
                self._keeper.emits(self)
            self._waiting += kept
            self._mark = mark or self._mark
            if self._tally.weight > BATCH_BYTES:
                self.pack()                      # now, so that what is too much for a window pauses it now
        if self._tally.dropped:
            self._check_output()

    def _check_output(self) -> None:
        if self._tally.dropped and self._stopped_by is None:
            self.stop(OutputLimit(f"The run produced more than its limit of {self.spec.limits.output_bytes} bytes, or more "
                                  f"than {EVENT_BYTES} at once."))

    def _takes(self, event: RuntimeEvent) -> bool:
        """Whether an event that is no output is to be kept."""
        kind = event.WhichOneof("kind")
        if kind == "started":
            self._times.started = self._times.heard
            self._tally.entry.started_us = events.now_us()
            self._tally.entry.is_program = event.started.pid != 0
            event.started.policy_mode = self._policy_mode()
        elif kind in events.ENDING_KINDS:
            log.error("run {run_id}: the adapter {adapter} emitted an ending; it is left out", run_id=self.spec.run_id,
                      adapter=self.spec.adapter)
            return False
        return True

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
        self._end("failed", Outcome(processes_left=-1) if self._tally.entry.is_program else Outcome())

    def _ending_failed(self, failure: Failure) -> None:
        log.failure("run {run_id}: telling its ending failed", failure, run_id=self.spec.run_id)

    def _end(self, kind: str, outcome: Outcome) -> None:
        if self.state in ("ended", "detached"):
            return
        kind = self._own_reason(kind, outcome)
        if kind == "completed" and not outcome.code:
            outcome.code = "ok"
        self.state = "ended"
        self._execution = None
        waiting, self._waiting = self._waiting, []
        batches = self._tally.finish(kind, outcome, waiting)
        self._ending = kind, outcome
        self._keeper.emitted(self, batches, self._tally.place(batches, self._mark, True), b"", True)

    def _own_reason(self, kind: str, outcome: Outcome) -> str:
        """An ending that was asked for is told as such, whatever the program says; its own words are kept beside it."""
        error = self._stopped_by
        if error is None:
            return kind
        if outcome.code and outcome.code != error.code:
            outcome.said = f"{kind} ({outcome.code}): {outcome.message}" if outcome.message else f"{kind} ({outcome.code})"
        elif kind == "completed":
            outcome.said = kind
        outcome.code, outcome.message, outcome.retryable = error.code, error.message, error.retryable
        return events.kind_of(error)


def _error_of(outcome: Outcome) -> IOPError:
    """Why an earlier start of the node stopped it."""
    if outcome.code == Cancelled.code:
        return Cancelled(outcome.message)
    error = IOPError(outcome.message)
    error.code, error.retryable = outcome.code, outcome.retryable  # as that start had them
    return error
