"""What a node that comes back says of its runs, what it is told, and what becomes of those it does not know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, NamedTuple

from twisted.logger import Logger

from iop.edge.dispatch import Dispatcher
from iop.edge.run import Run
from iop.edge.runs import Runs
from iop.errors import HistoryGap, IOPError, NodeRestarted, NoSuchRun, SpoolCorrupt
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


class Standing(Enum):
    """How a run stands between history and its node."""

    GOES_ON = "what the node has follows what the edge has"
    GAP = "events between the two are lost; more will come behind them"
    LOST = "the node has nothing more of it"
    CONFLICT = "the node's spool has lost events, and it would give their numbers again"


def standing(run: Run, report: RunReport | None) -> Standing:
    """What becomes of a run that should be with a node, by what the node reports of it (E7): pure."""
    last = run.last_seq
    if run.log.ended:
        return Standing.GOES_ON
    if report is None:
        return Standing.LOST
    if report.last_spooled < last and report.open:
        return Standing.CONFLICT         # its spool was set back
    if report.open or report.last_spooled > last:
        if report.first_unacked <= last + 1:
            return Standing.GOES_ON
        if report.open or report.first_unacked <= report.last_spooled:
            return Standing.GAP          # history was set back
    return Standing.LOST


def judge(node_id: str, report: RunReport, run: Run | None, ended: Ended | None) -> RunVerdict:
    """The verdict on one run of a node: pure. `run`: where it is live; `ended`: what history has of it otherwise."""
    verdict = RunVerdict(run_id=report.run_id, attempt=report.attempt)
    if run is not None and run.leased_to(node_id, report.attempt):
        stands = standing(run, report)
        verdict.committed_seq = run.committed_seq
        if stands is Standing.GAP:       # nobody will ask for what is gone
            verdict.committed_seq = report.first_unacked - 1
        if stands in (Standing.LOST, Standing.CONFLICT):
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

    def adopt(self) -> None:
        """A history that was set back may hold as queued what a node is carrying out: it is that node's."""
        for report in self._reports.values():
            run = self._runs.get(report.run_id)
            if run is not None and report.open and run.record.state == "queued" and report.attempt > run.record.attempt:
                log.warn("{node_id} has run {run_id} under way, which history has as queued", node_id=self._node_id,
                         run_id=run.run_id)
                self._dispatcher.adopt(run, self._node_id, report.attempt)

    def forgotten(self, pages: Iterable[Verdicts]) -> Iterator[RunReport]:
        """The runs of which history knows nothing, and of which the node still has something."""
        for verdict in (one for page in pages for one in page.runs if one.verdict == VERDICT_UNKNOWN):
            report = self._reports[verdict.run_id, verdict.attempt]
            if report.open or report.first_unacked <= report.last_spooled:
                yield report

    def settle(self, instance: str) -> list[Run]:
        """Runs that the node still has go on; those that it does not know end, or are placed again where that is safe.

        `instance` is the node's present start. Returns those to send to it again, now that it is told its configuration.
        """
        unsent: list[Run] = []
        for run in self._runs.of_node(self._node_id):
            report = self._reports.get((run.run_id, run.record.attempt))
            stands = standing(run, report)
            if stands is Standing.CONFLICT and report is not None:
                self._runs.fail(run, SpoolCorrupt(f"The spool of {self._node_id} ends at event {report.last_spooled} of "
                                                  f"this run, of which the edge has {run.last_seq}."))
            elif stands is Standing.LOST:
                if report is None and run.silent and not run.cancelling:
                    unsent.append(run)
                else:
                    self._lost(run, report, instance)
            else:
                self._go_on(run, report if stands is Standing.GAP else None, instance)
        return unsent

    def _go_on(self, run: Run, gap: RunReport | None, instance: str) -> None:
        run.instance = instance
        if gap is not None:
            first, last = run.last_seq + 1, gap.first_unacked - 1
            log.error("run {run_id}: history does not have the events {attempt}.{first} to {attempt}.{last}, and the node "
                      "{node_id} does not have them any more", run_id=run.run_id, attempt=run.record.attempt, first=first,
                      last=last, node_id=self._node_id)
            self._runs.skip(run, last, f"history lost them, and the node {self._node_id} was told to let go of them")
        if run.record.state == "disconnected":
            self._runs.note(run, state="running" if run.record.started_us else "placed")

    def _lost(self, run: Run, report: RunReport | None, instance: str) -> None:
        """Its node has no more of it: since it was started again, or since history has lost what it acknowledged."""
        log.warn("the node {node_id} does not know run {run_id} any more", node_id=self._node_id, run_id=run.run_id)
        if run.instance and run.instance != instance:
            error: IOPError = NodeRestarted(f"The node {self._node_id} came back without this run.")
        else:
            told = "" if report is None else f" Its node had it up to {report.last_spooled}."
            error = HistoryGap(f"History has this run up to event {run.last_seq}, and the node {self._node_id} nothing of "
                               f"what followed.{told}")
        self._dispatcher.again_or_fail(run, error)
