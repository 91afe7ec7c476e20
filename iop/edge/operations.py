"""What is asked of nodes: labels, drain, commands. Each is in the audit trail before it is done."""

from __future__ import annotations

from typing import Any

from iop.edge.bus import Bus
from iop.edge.configs import Configs
from iop.edge.dispatch import Dispatcher
from iop.edge.node import Node
from iop.edge.nodefile import NodeFile
from iop.edge.registry import Registry
from iop.edge.submit import check_labels
from iop.errors import InvalidRequest
from iop.link.calls import Calls
from iop.link.errors import LinkDown
from iop.proto.node_pb2 import NodeCommandRequest, NodeCommandResponse
from iop.proto.run_pb2 import Source
from iop.records import NodeView
from iop.runs import new_run_id

MAX_LINE_CHARS = 16 * 1024       # of a command
MAX_TIMEOUT_S = 600.0


class Audit:
    """Writes down who does what, before it is done; what cannot be written down is refused (HistoryUnavailable)."""

    def __init__(self, history: Any, bus: Bus) -> None:
        self._history = history
        self._bus = bus

    async def before(self, source: Source, action: str, *, node_id: str = "", run_id: str = "", **detail: Any) -> None:
        """Fires once the audit trail has it; then the bus tells that it is being done."""
        named = {name: value for name, value in (("node_id", node_id), ("run_id", run_id)) if value}
        await self._history.audit(source, action, named | detail)
        self._bus.tell("operator", node_id=node_id, run_id=run_id, source=source, action=action, **detail)


class NodeOperations:
    """The operations on nodes."""

    def __init__(self, registry: Registry, dispatcher: Dispatcher, configs: Configs, calls: Calls, audit: Audit,
                 kept: NodeFile) -> None:
        self._registry = registry
        self._kept = kept
        self._dispatcher = dispatcher
        self._configs = configs
        self._calls = calls
        self._audit = audit

    async def label(self, node_id: str, changes: dict[str, str | None], source: Source) -> NodeView:
        node = self._registry.node(node_id)
        check_labels(changes)
        check_labels(node.changed_labels(changes))
        await self._audit.before(source, "label", node_id=node_id, changes=changes)
        node.label_changes = node.changed_labels(changes)
        await self._kept.save(node)
        if node.ready:
            node.link.send("node_config_payload", self._configs.labels(node))
        self._dispatcher.pump()
        return node.view()

    async def drain(self, node_id: str, draining: bool, source: Source) -> NodeView:
        node = self._registry.node(node_id)
        await self._audit.before(source, "drain" if draining else "undrain", node_id=node_id)
        node.draining = draining
        await self._kept.save(node)
        self._dispatcher.pump()
        return node.view()

    async def command(self, node_id: str, line: str, source: Source, timeout_s: float) -> NodeCommandResponse:
        self._linked(node_id)
        if not line.strip() or len(line) > MAX_LINE_CHARS:
            raise InvalidRequest(f"A command is one line of at most {MAX_LINE_CHARS} characters.")
        if not 0 < timeout_s <= MAX_TIMEOUT_S:
            raise InvalidRequest(f"A command's time limit is more than 0 and at most {MAX_TIMEOUT_S:.0f} seconds.")
        await self._audit.before(source, "command", node_id=node_id, line=line)
        node = self._linked(node_id)
        command_id = new_run_id()
        answer: NodeCommandResponse = await self._calls.ask(
            node.link, "node_command_request",
            NodeCommandRequest(command_id=command_id, line=line, timeout_s=timeout_s, source=source), command_id, timeout_s)
        return answer

    def _linked(self, node_id: str) -> Node:
        node = self._registry.node(node_id)
        if not node.ready:
            raise LinkDown(f"The node {node_id} is not connected.")
        return node
