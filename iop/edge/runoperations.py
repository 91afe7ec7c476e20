"""What is asked of runs that are there. Each is in the audit trail before it is done."""

from __future__ import annotations

import copy
from typing import Any

from iop.edge.dispatch import Dispatcher
from iop.edge.operations import Audit
from iop.edge.registry import Registry
from iop.edge.run import Run
from iop.edge.runs import Runs
from iop.errors import Conflict, InvalidRequest
from iop.events import now_us
from iop.link.errors import LinkDown
from iop.proto.run_pb2 import RunInput, Source
from iop.records import RunRecord

MAX_INPUT_BYTES = 1024 * 1024    # of one piece of input to a running program


class RunOperations:
    """The operations on runs."""

    def __init__(self, history: Any, runs: Runs, registry: Registry, dispatcher: Dispatcher, audit: Audit) -> None:
        self._history = history
        self._runs = runs
        self._registry = registry
        self._dispatcher = dispatcher
        self._audit = audit

    async def cancel(self, run_id: str, source: Source, reason: str) -> RunRecord:
        record = await self._runs.record(run_id)
        if not record.ended:
            await self._audit.before(source, "cancel", run_id=run_id, node_id=record.node_id, reason=reason[:1000])
            run = self._runs.get(run_id)
            if run is not None:
                await self._dispatcher.cancel(run, source, reason[:1000])
        return copy.copy(await self._runs.record(run_id))

    async def forget(self, run_id: str, source: Source) -> None:
        record = await self._runs.record(run_id)
        if not record.ended:
            raise Conflict("The run has not ended; cancel it first.")
        await self._audit.before(source, "forget", run_id=run_id, node_id=record.node_id)
        record.forgotten = now_us()
        await self._history.update_run(run_id, {"forgotten": record.forgotten})

    async def give_input(self, run_id: str, data: bytes, end: bool, source: Source) -> None:
        if len(data) > MAX_INPUT_BYTES:
            raise InvalidRequest(f"One piece of input has at most {MAX_INPUT_BYTES} bytes.")
        await self._runs.record(run_id)
        if self._at_work(run_id).takes_input is False:
            raise Conflict("The run takes no input while it is under way.",
                           hint="A program's target with `input: open` does.")
        await self._audit.before(source, "input", run_id=run_id, bytes=len(data), end=end)
        run = self._at_work(run_id)
        node = self._registry.node(run.record.node_id)
        if not node.ready:
            raise LinkDown(f"The node {node.node_id} is not connected.")
        node.link.send("run_input", RunInput(run_id=run_id, data=data, end=end))

    def _at_work(self, run_id: str) -> Run:
        run = self._runs.get(run_id)
        if run is None or run.record.ended or not run.sent:
            raise Conflict("The run is not running.")
        return run
