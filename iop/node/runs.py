"""The runs of this node: taken on once, within its slots, and let go when they have ended."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from iop.errors import Cancelled, Draining, HistoryUnavailable, InvalidRequest, IOPError, NodeRestarted, QueueFull
from iop.node.backend import Backend
from iop.node.box import Kept, Key
from iop.node.offers import Offers
from iop.node.router import resolve
from iop.node.run import Run
from iop.node.spool import Spool
from iop.node.tools import Tools
from iop.proto import run_pb2
from iop.runs import ExecutionSpec

log = Logger()


class Runs:
    """All runs under way. `send(kind, message)` reaches the edge when it can; `closed()` is why no new run is taken on.

    `settled()` is called after each run that was let go.
    """

    def __init__(self, offers: Offers, tools: Tools, record: Any, spool: Spool, clock: IReactorTime,
                 marker: Mapping[str, str], send: Callable[[str, Any], None], closed: Callable[[], str],
                 settled: Callable[[], None]) -> None:
        self._offers = offers
        self._tools = tools
        self._record = record
        self._spool = spool
        self._clock = clock
        self._marker = dict(marker)
        self._send = send
        self._closed = closed
        self._settled = settled
        self._runs: dict[Key, Run] = {}
        self._by_id: defaultdict[str, list[Run]] = defaultdict(list)
        self._taken: Counter[tuple[str, str]] = Counter()      # slots, by adapter and target; "" for all targets
        self._backends: dict[Key, Backend] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(list(self._runs.values()))

    def get(self, key: Key) -> Run | None:
        return self._runs.get(key)

    def of_run(self, run_id: str) -> list[Run]:
        """The attempts of a run that are under way here; at most one, mostly."""
        return list(self._by_id.get(run_id, ()))

    # --- what the edge asks

    def requested(self, request: run_pb2.RunRequest) -> None:
        """Take it on once, after the record has it; a repeated request is answered."""
        key = request.run_id, request.attempt
        if key in self._runs or key in self._spool:
            if key not in self._runs or self._runs[key].state != "waiting":  # else the commit answers
                self._accept(key)
            return
        try:
            run = self._take_on(request)
        except IOPError as error:
            self._reject(key, error)
            return
        target = self._backends[key].targets[request.target]
        taken = self._record.accept(request.run_id, request.attempt, request.adapter, request.target,
                                    request.SerializeToString(), target.packed,
                                    run.spec.limits.SerializeToString())
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
        self._spool.look()
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
        return self._add(spec, backend)

    def take_up(self, spec: ExecutionSpec, backend: Backend, accepted_us: int) -> None:
        """Go on with one that an earlier start of the node began; it counts for the slots like any other."""
        box = self._spool.box(spec.run_id, spec.attempt)
        run = self._add(spec, backend)
        run.take_up(box.entry if box is not None else None, accepted_us)

    def _add(self, spec: ExecutionSpec, backend: Backend) -> Run:
        run = Run(spec, backend.adapter, self, self._clock, lambda: self._tools.policy.mode)
        self._runs[run.key] = run
        self._by_id[spec.run_id].append(run)
        self._taken[spec.adapter, ""] += 1
        self._taken[spec.adapter, spec.target] += 1
        self._backends[run.key] = backend
        backend.run_began()
        self._spool.open(spec.run_id, spec.attempt, run)
        return run

    def detach(self) -> None:
        """Leave those that outlive this start of the node to the next one."""
        for run in self:
            if run.outlives:
                run.detach()
                self._free(run)

    def _check_slots(self, backend: Backend, target: str) -> None:
        if 0 < backend.concurrency <= self._taken[backend.name, ""]:
            raise QueueFull(f"All {backend.concurrency} slots of the adapter {backend.name} on this node are taken.")
        limit = backend.targets[target].config.concurrency
        if 0 < limit <= self._taken[backend.name, target]:
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
        self._spool.drop(*run.key)
        self._free(run)

    def _free(self, run: Run) -> None:
        if self._runs.pop(run.key, None) is not None:
            self._left(run)
        backend = self._backends.pop(run.key, None)
        if backend is not None:
            backend.run_ended()
        self._settled()

    def _left(self, run: Run) -> None:
        spec = run.spec
        self._taken[spec.adapter, ""] -= 1
        self._taken[spec.adapter, spec.target] -= 1
        attempts = self._by_id[spec.run_id]
        attempts.remove(run)
        if not attempts:
            del self._by_id[spec.run_id]

    # --- RunKeeper

    def emits(self, run: Run) -> None:
        self._spool.soon(run)

    def emitted(self, run: Run, batches: Sequence[Kept], payload: bytes, mark: bytes, ended: bool) -> None:
        if not self._spool.put(run.key, batches, payload, mark, ended) and ended:
            run.kept(b"")          # the edge does not want it: nothing is kept of it, and it ends here

    def run_ended(self, run: Run, kind: str, outcome: run_pb2.Outcome) -> None:
        self.record_end(run.key, kind, outcome)
        self._free(run)
        if run.spec.run_id not in self._by_id:
            self._tools.remove_workdir(run.spec.run_id)

    def record_end(self, key: Key, kind: str, outcome: run_pb2.Outcome) -> None:
        """Note an ending that the spool has; the spool lets go of it only once the record has it too."""
        ended = self._record.end(*key, kind, outcome.SerializeToString())
        ended.addCallbacks(lambda _: self._recorded(key), self._not_recorded, errbackArgs=(key,))

    def _recorded(self, key: Key) -> None:
        self._spool.recorded(*key)
        self._settled()

    def _not_recorded(self, failure: Failure, key: Key) -> None:
        log.warn("run {run_id}: its ending is not in the node's record: {reason}", run_id=key[0],
                 reason=failure.getErrorMessage())
