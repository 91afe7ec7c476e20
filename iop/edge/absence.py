"""Nodes that are away: their runs wait for them, for so long, and then end as node_lost."""

from __future__ import annotations

from typing import Any

from twisted.logger import Logger

from iop.edge.runs import Runs
from iop.errors import NodeLost

log = Logger()


class Absences:
    """One timer a node that is away and has open runs."""

    def __init__(self, runs: Runs, clock: Any, lost_after_s: float) -> None:
        self.lost_after_s = lost_after_s
        self._runs = runs
        self._clock = clock
        self._timers: dict[str, Any] = {}

    def left(self, node_id: str) -> None:
        """Its link is down (or has not come up since the edge started)."""
        runs = self._runs.of_node(node_id)
        for run in runs:
            if run.record.state != "disconnected":
                self._runs.note(run, state="disconnected")
        if runs and node_id not in self._timers:
            self._timers[node_id] = self._clock.callLater(self.lost_after_s, self._lost, node_id)

    def returned(self, node_id: str) -> None:
        """It has reported its runs: what it still has goes on."""
        timer = self._timers.pop(node_id, None)
        if timer is not None:
            timer.cancel()

    def _lost(self, node_id: str) -> None:
        del self._timers[node_id]
        runs = self._runs.of_node(node_id)
        log.error("the node {node_id} has been away for {seconds:g} s; {count} runs end as node_lost", node_id=node_id,
                  seconds=self.lost_after_s, count=len(runs))
        for run in runs:
            self._runs.fail(run, NodeLost(f"The node {node_id} has been away for {self.lost_after_s:g} s; what it still "
                                          "reports is kept apart."))

    def stop(self) -> None:
        """Wait no more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
