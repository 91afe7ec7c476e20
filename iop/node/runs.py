"""The runs of this node: taken on once, within its slots, and let go when they have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from iop.errors import Cancelled, Draining, HistoryUnavailable, InvalidRequest, IOPError, NodeRestarted, QueueFull
from iop.node.offers import Backend, Offers
from iop.node.router import resolve
from iop.node.run import Run
from iop.node.spool import Key, Outbox
from iop.node.tools import Tools
from iop.proto import run_pb2

log = Logger()


class Runs:
    """All runs under way. `send(kind, message)` reaches the edge when it can; `closed()` is why no new run is taken on.

    `settled()` is called after each run that was let go.
    """

    def __init__(self, offers: Offers, tools: Tools, record: Any, outbox: Outbox, clock: IReactorTime,
                 marker: Mapping[str, str], send: Callable[[str, Any], None], closed: Callable[[], str],
                 settled: Callable[[], None]) -> None:
        self._offers = offers
        self._tools = tools
        self._record = record
        self._outbox = outbox
        self._clock = clock
        self._marker = dict(marker)
        self._send = send
        self._closed = closed
        self._settled = settled
        self._runs: dict[Key, Run] = {}
        self._backends: dict[Key, Backend] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(list(self._runs.values()))

    def get(self, key: Key) -> Run | None:
        return self._runs.get(key)

    def of_run(self, run_id: str) -> list[Run]:
        """The attempts of a run that are under way here; at most one, mostly."""
        return [run for run in self if run.spec.run_id == run_id]

    # --- what the edge asks

    def requested(self, request: run_pb2.RunRequest) -> None:
        """Take it on once, after the record has it; a repeated request is answered."""
        key = request.run_id, request.attempt
        if key in self._runs or key in self._outbox:
            if key not in self._runs or self._runs[key].state != "waiting":  # else the commit answers
                self._accept(key)
            return
        try:
            run = self._take_on(request)
        except IOPError as error:
            self._reject(key, error)
            return
        taken = self._record.accept(request.run_id, request.attempt, request.adapter, request.target,
                                    request.SerializeToString())
        taken.addCallbacks(self._taken_on, self._not_taken_on, callbackArgs=(run,), errbackArgs=(run,))
        taken.addErrback(lambda failure: log.failure("run {run_id}: could not be begun", failure, run_id=request.run_id))

    def cancel(self, asked: run_pb2.CancelRequest) -> None:
        for run in self.of_run(asked.run_id):
            run.stop(Cancelled(asked.reason))

    def give_input(self, given: run_pb2.RunInput) -> None:
        for run in self.of_run(given.run_id):
            try:
                run.give_input(given.data, given.end)
            except InvalidRequest as error:
                log.info("run {run_id}: input refused: {reason}", run_id=given.run_id, reason=error.message)

    def check_limits(self) -> None:
        """Called once a second for all."""
        now = self._clock.seconds()
        for run in self:
            run.check_limits(now)

    # --- taking on

    def _take_on(self, request: run_pb2.RunRequest) -> Run:
        """A slot and a Run; raises the reason why not."""
        reason = self._closed()
        if reason:
            raise Draining(reason)
        spec = resolve(request, self._offers.backends, self._marker)
        backend = self._offers.backends[spec.adapter]
        self._check_slots(backend, spec.target)
        run = Run(spec, backend.adapter, self, self._clock, lambda: self._tools.policy.mode)
        self._runs[run.key] = run
        self._backends[run.key] = backend
        backend.run_began()
        self._outbox.open(spec.run_id, spec.attempt, run)
        return run

    def _check_slots(self, backend: Backend, target: str) -> None:
        running = [run.spec.target for run in self._runs.values() if run.spec.adapter == backend.name]
        if backend.concurrency and len(running) >= backend.concurrency:
            raise QueueFull(f"All {backend.concurrency} slots of the adapter {backend.name} on this node are taken.")
        limit = backend.targets[target].config.concurrency
        if limit and running.count(target) >= limit:
            raise QueueFull(f"All {limit} slots of {backend.name}/{target} on this node are taken.")

    def _taken_on(self, fresh: bool, run: Run) -> None:
        if not fresh:
            self._forget(run)
            self._reject(run.key, NodeRestarted("This node had this run already, and runs nothing twice."))
        elif run.state == "waiting":
            self._accept(run.key)
            run.start()

    def _not_taken_on(self, failure: Failure, run: Run) -> None:
        self._forget(run)
        if not isinstance(failure.value, IOPError):
            log.failure("run {run_id}: the node's record failed", failure, run_id=run.spec.run_id)
        self._reject(run.key, HistoryUnavailable("The node's own record of its runs cannot be written now; look at the disk "
                                                 "of its state folder."))

    def _accept(self, key: Key) -> None:
        self._send("run_accepted", run_pb2.RunAccepted(run_id=key[0], attempt=key[1]))

    def _reject(self, key: Key, error: IOPError) -> None:
        log.info("run {run_id} refused ({code})", run_id=key[0], code=error.code)
        self._send("run_rejected", run_pb2.RunRejected(run_id=key[0], attempt=key[1], code=error.code, message=error.message,
                                                       retryable=error.retryable))

    def _forget(self, run: Run) -> None:
        """One that never began."""
        self._outbox.drop(*run.key)
        self._free(run)

    def _free(self, run: Run) -> None:
        self._runs.pop(run.key, None)
        backend = self._backends.pop(run.key, None)
        if backend is not None:
            backend.run_ended()
        self._settled()

    # --- RunKeeper

    def batch_emitted(self, run: Run, batch: run_pb2.EventBatch) -> None:
        if run.key in self._outbox:
            self._outbox.append(batch)
            self._send("event_batch", batch)

    def run_ended(self, run: Run, kind: str, outcome: run_pb2.Outcome) -> None:
        self._outbox.ended(*run.key)
        ended = self._record.end(run.spec.run_id, run.spec.attempt, kind, outcome.SerializeToString())
        ended.addErrback(lambda failure: log.warn("run {run_id}: its ending is not in the node's record: {reason}",
                                                  run_id=run.spec.run_id, reason=failure.getErrorMessage()))
        self._free(run)
        if not self.of_run(run.spec.run_id):
            self._tools.remove_workdir(run.spec.run_id)
