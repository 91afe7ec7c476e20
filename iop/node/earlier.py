"""What becomes of the attempts that an earlier start of this node left open: each goes on, or ends once.

::

    its ending is in the spool                -->  the record is told
    its program lives, the spool is whole     -->  taken up, under the configuration that it was accepted under
    the spool is damaged where it stands      -->  failed, spool_corrupt
    the spool has an entry of it              -->  failed, node_restarted, behind its last event
    nothing has it but the record             -->  closed there: the edge asks for it again, and is refused
"""

from __future__ import annotations

from typing import Any

from twisted.logger import Logger

from iop.errors import ConfigError, IOPError, NodeRestarted, SpoolCorrupt
from iop.events import outcome_of
from iop.interfaces import IResumes
from iop.node.backend import Backend
from iop.node.box import Box, Key
from iop.node.tally import Tally
from iop.proto.node_pb2 import TargetConfig
from iop.proto.run_pb2 import Limits, Outcome, RunRequest
from iop.runs import ExecutionSpec

log = Logger()


def fate(box: Box | None, lives: bool) -> str:
    """What becomes of an attempt that the record has as open: told | torn | goes_on | restarted | closed. Pure."""
    if box is not None and box.torn:
        return "torn"
    if box is not None and not box.open:
        return "told"
    if lives:
        return "goes_on"
    return "closed" if box is None else "restarted"


class Earlier:
    """`node` is the NodeService, which has not dialed yet."""

    def __init__(self, node: Any) -> None:
        self._node = node

    def settle(self, open_runs: list[Any], survivors: set[Key]) -> set[Key]:
        """Decide on all of them, and have the programs ended that nobody goes on with. Gives those that go on."""
        going_on: set[Key] = set()
        known = {(run.run_id, run.attempt): run for run in open_runs}
        for key, run in known.items():
            if self._settle(key, run, key in survivors):
                going_on.add(key)
        for key, box in self._node.spool.boxes():
            if key not in known:
                self._unrecorded(key, box)
        for key in survivors - going_on:
            log.warn("run {run_id}: its program is ended, since the run cannot go on", run_id=key[0])
            self._node.tools.spawner.discard(*key).addErrback(
                lambda failure: log.failure("a program of an earlier start could not be ended", failure))
        return going_on

    def _settle(self, key: Key, run: Any, lives: bool) -> bool:
        box = self._node.spool.box(*key)
        what = fate(box, lives)
        if what == "goes_on" and self._goes_on(run):
            return True
        if box is None:
            self._node.runs.record_end(key, "failed", outcome_of(NodeRestarted()))
        elif what == "told":
            self._told(key, box)
        else:
            self._end(key, box, SpoolCorrupt() if what == "torn" else NodeRestarted())
        return False

    def _unrecorded(self, key: Key, box: Box) -> None:
        """The record has its ending, and has not lost it: then the spool may let go of it once it is acknowledged."""
        if box.open:
            self._end(key, box, SpoolCorrupt() if box.torn else NodeRestarted())
        else:
            self._node.spool.recorded(*key)

    def _goes_on(self, run: Any) -> bool:
        try:
            backend, spec = self._rebuilt(run)
        except IOPError as error:
            log.error("run {run_id} lives, but cannot be taken up: {reason}", run_id=run.run_id, reason=error.message)
            return False
        log.info("run {run_id} is taken up again", run_id=run.run_id)
        self._node.runs.take_up(spec, backend, run.accepted_us)
        backend.retire()         # it is for this run alone
        return True

    def _rebuilt(self, run: Any) -> tuple[Backend, ExecutionSpec]:
        """As it was accepted. Raises ConfigError where this version of the node cannot build that."""
        if not run.target_config:
            raise ConfigError("The node's record does not have its configuration.")
        backend = self._node.offers.rebuilt(run.adapter, TargetConfig.FromString(run.target_config))
        if not IResumes.providedBy(backend.adapter):
            raise ConfigError(f"The adapter {run.adapter} takes up no runs.")
        return backend, ExecutionSpec(
            run_id=run.run_id, attempt=run.attempt, adapter=run.adapter, target=run.target,
            settings=backend.targets[run.target].settings, request=RunRequest.FromString(run.request),
            limits=Limits.FromString(run.limits or b""), marker={**self._node.marker, "IOP_RUN_ID": run.run_id})

    def _told(self, key: Key, box: Box) -> None:
        ending = box.ending()
        if ending is not None:
            self._node.runs.record_end(key, *ending)

    def _end(self, key: Key, box: Box, error: IOPError) -> None:
        log.info("run {run_id} ends with an earlier start of this node ({code})", run_id=key[0], code=error.code)
        tally = Tally(*key)
        if box.entry is not None:
            tally.go_on(box.entry)
        outcome = outcome_of(error)
        batches = tally.finish("failed", outcome)
        box.run = Ending(self._node.runs, key, outcome, tally)
        tally.place((), b"", True)
        self._node.spool.end(*key, batches, tally.entry)


class Ending:
    """What stands for an attempt that ends without a Run."""

    def __init__(self, runs: Any, key: Key, outcome: Outcome, tally: Tally) -> None:
        self._runs = runs
        self._key = key
        self._outcome = outcome
        self._tally = tally

    def pause(self) -> None:
        """Nothing comes of it."""

    resume = pack = pause

    def kept(self, mark: bytes) -> None:
        self._runs.record_end(self._key, "failed", self._outcome)

    def place(self) -> bytes:
        return self._tally.place()
