"""What a node that comes back says of its runs, what it is told, and what becomes of those it does not know."""

from __future__ import annotations

from typing import Any, NamedTuple

from twisted.logger import Logger

from iop.edge.dispatch import Dispatcher
from iop.edge.run import Run
from iop.edge.runs import Runs
from iop.errors import HistoryGap, NodeRestarted, NoSuchRun
from iop.proto.link_pb2 import (
    VERDICT_CANCEL,
    VERDICT_CONTINUE,
    VERDICT_FENCED,
    VERDICT_UNKNOWN,
    RunReport,
    RunVerdict,
    Verdicts,
)
from iop.records import RunRecord

PAGE_RUNS = 1000                 # verdicts in one message

log = Logger()
_Key = tuple[str, int]


class Ended(NamedTuple):
    """What history knows of an attempt that is not live."""

    record: RunRecord
    committed_seq: int


def judge(node_id: str, report: RunReport, run: Run | None, ended: Ended | None) -> RunVerdict:
    """The verdict on one run of a node: pure. `run`: where it is live; `ended`: what history has of it otherwise."""
    verdict = RunVerdict(run_id=report.run_id, attempt=report.attempt)
    if run is not None and run.leased_to(node_id, report.attempt):
        verdict.committed_seq = run.committed_seq
        if has_gap(run, report):
            verdict.verdict = VERDICT_FENCED
        else:
            verdict.verdict = VERDICT_CANCEL if run.cancelling and not run.log.ended else VERDICT_CONTINUE
        return verdict
    record = run.record if run is not None else ended.record if ended is not None else None
    if record is None or report.attempt > record.attempt or (record.attempt == report.attempt and record.node_id != node_id):
        verdict.verdict = VERDICT_UNKNOWN
        return verdict
    verdict.committed_seq = ended.committed_seq if ended is not None else 0
    over = not report.open and report.last_spooled <= verdict.committed_seq
    verdict.verdict = VERDICT_CONTINUE if over else VERDICT_FENCED
    return verdict


def has_gap(run: Run, report: RunReport) -> bool:
    """Whether its node has let go of events that history does not have: an acknowledgement was lost with a database (E7)."""
    return not run.log.ended and report.first_unacked > run.committed_seq + 1


def missing(runs: list[Run], reports: dict[_Key, RunReport]) -> list[Run]:
    """The runs that should be with a node and are neither open there nor have anything more to come: pure."""
    found = []
    for run in runs:
        report = reports.get((run.run_id, run.record.attempt))
        if report is None or (not report.open and report.last_spooled <= run.committed_seq):
            found.append(run)
    return [run for run in found if not run.log.ended]


class Reports:
    """The pages of one node's report, until the last."""

    def __init__(self, node_id: str, history: Any, runs: Runs, dispatcher: Dispatcher) -> None:
        self._node_id = node_id
        self._history = history
        self._runs = runs
        self._dispatcher = dispatcher
        self._reports: dict[_Key, RunReport] = {}

    def add(self, page: list[RunReport]) -> None:
        for report in page:
            self._reports[report.run_id, report.attempt] = report

    async def look_up(self) -> dict[_Key, Ended]:
        """What history has of the attempts that are not live. The rest is judged in the turn that follows."""
        found: dict[_Key, Ended] = {}
        for key, report in self._reports.items():
            run = self._runs.get(report.run_id)
            if run is not None and run.leased_to(self._node_id, report.attempt):
                continue
            try:
                record = run.record if run is not None else await self._history.run(report.run_id)
            except NoSuchRun:
                continue
            found[key] = Ended(record, await self._history.committed(*key))
        return found

    def verdicts(self, ended: dict[_Key, Ended]) -> list[Verdicts]:
        """The pages to send, the last one marked; at least one."""
        words = [judge(self._node_id, report, self._runs.get(report.run_id), ended.get(key))
                 for key, report in self._reports.items()]
        pages = [Verdicts(runs=words[at:at + PAGE_RUNS]) for at in range(0, len(words), PAGE_RUNS)] or [Verdicts()]
        pages[-1].last = True
        return pages

    def settle(self) -> list[Run]:
        """Runs that the node still has go on; those that it does not know end, or are placed again where that is safe.

        Returns those to send to it again, now that it is told its configuration.
        """
        unsent: list[Run] = []
        for run in self._runs.of_node(self._node_id):
            report = self._reports.get((run.run_id, run.record.attempt))
            if report is not None and has_gap(run, report):
                self._runs.fail(run, HistoryGap(f"History has this run up to event {run.committed_seq}, and the node "
                                                f"{self._node_id} nothing before {report.first_unacked}."))
        runs = self._runs.of_node(self._node_id)
        lost = missing(runs, self._reports)
        for run in runs:
            if run not in lost and run.record.state == "disconnected":
                self._runs.note(run, state="running" if run.record.started_us else "placed")
        for run in lost:
            if run.silent and not run.cancelling and (run.run_id, run.record.attempt) not in self._reports:
                unsent.append(run)
                continue
            log.warn("the node {node_id} does not know run {run_id} any more", node_id=self._node_id, run_id=run.run_id)
            self._dispatcher.again_or_fail(run, NodeRestarted(f"The node {self._node_id} came back without this run."))
        return unsent
