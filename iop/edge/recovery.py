"""Taking up again what was open when the edge ended."""

from __future__ import annotations

from typing import Any

from twisted.logger import Logger

from iop.edge.absence import Absences
from iop.edge.dispatch import Dispatcher
from iop.edge.runs import Runs
from iop.proto.run_pb2 import RunRequest

log = Logger()


async def recover(history: Any, runs: Runs, dispatcher: Dispatcher, absences: Absences) -> None:
    """Queued runs wait again; what was with a node waits for its report, for lost_after_s.

    A run that is `placed` may never have been sent: its node's report tells, and until then nobody starts it again.
    """
    away = set()
    found = await history.open_runs()
    for record in found:
        request = RunRequest.FromString(record.request)
        request.adapter, request.target = record.adapter, record.target      # of those that its alias means, where it is
        run = runs.add(record, request, committed_seq=await history.committed(record.run_id, record.attempt))
        if record.state == "queued":
            dispatcher.resume(run)
            continue
        dispatcher.with_node(run)
        away.add(record.node_id)
    for node_id in away:
        absences.left(node_id)
    if found:
        log.info("{count} open runs are taken up again, from {nodes} nodes and the queue", count=len(found), nodes=len(away))
