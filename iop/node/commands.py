"""The node's commands: what NodeCommandRequest can ask of it. The context of each is the NodeService."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec

from iop._version import VERSION_TEXT
from iop.commands import CommandTable
from iop.errors import InvalidRequest
from iop.events import outcome_dict, rfc3339
from iop.node.model_commands import add_model_commands
from iop.proto.node_pb2 import AdapterState
from iop.proto.run_pb2 import Outcome


def node_commands(start_again: Callable[[], object]) -> CommandTable:
    """The table of one node. `start_again()` begins a start of its process in place, or raises why not."""
    table = CommandTable()
    _look_commands(table)
    _change_commands(table, start_again)
    add_model_commands(table)
    return table


def _look_commands(table: CommandTable) -> None:
    @table.command
    def status(node: Any) -> dict[str, Any]:
        """How this node is: link, policy, runs, what waits to be acknowledged."""
        return {
            "node_id": node.node_id, "version": VERSION_TEXT, "pid": os.getpid(), "policy_mode": node.tools.policy.mode,
            "draining": node.draining, "running": len(node.runs), "unacknowledged_bytes": node.spool.size_bytes,
            "spool_bytes": node.spool.disk_bytes, "spool_stuck": node.spool.stuck or None,
            "link": {"epoch": node.link.epoch, "edge": node.link.peer_id} if node.link is not None else None,
            "config_revision": node.offers.revision, "facts": dict(node.facts),
        }

    @table.command
    def capabilities(node: Any) -> dict[str, Any]:
        """What this node offers, and what of its configuration it refused and why."""
        return {
            "adapters": [_adapter_dict(adapter) for adapter in node.status().adapters],
            "refused": [{"path": fault.path, "code": fault.code, "reason": fault.reason} for fault in node.offers.faults()],
        }

    @table.command
    def labels(node: Any) -> dict[str, str]:
        """The labels of this node: its own, and those the edge gave."""
        return dict(node.status().labels)

    @table.command
    async def runs(node: Any, *, limit: int = 20) -> list[dict[str, Any]]:
        """The latest runs in this node's own record, newest first. Example: runs --limit 100"""
        if not 1 <= limit <= 1000:
            raise InvalidRequest("--limit is a number from 1 to 1000.")
        return [_run_dict(run) for run in await node.record.recent(limit)]

    @table.command
    def version(node: Any) -> dict[str, str]:
        """The version of IOP that this node runs."""
        return {"version": VERSION_TEXT}


def _change_commands(table: CommandTable, start_again: Callable[[], object]) -> None:
    @table.command(changes=True)
    def drain(node: Any) -> dict[str, Any]:
        """Take no new runs; what runs goes on."""
        node.drain(True)
        return {"draining": True, "running": len(node.runs)}

    @table.command(changes=True)
    def undrain(node: Any) -> dict[str, Any]:
        """Take new runs again."""
        node.drain(False)
        return {"draining": False, "running": len(node.runs)}

    @table.command(changes=True)
    def restart(node: Any) -> dict[str, Any]:
        """Start this node again in place, e.g. with new code: programs go on, other runs have 20 s to end."""
        start_again()
        return {"restarting": True, "running": len(node.runs)}


def _adapter_dict(adapter: AdapterState) -> dict[str, Any]:
    return {
        "adapter": adapter.adapter, "concurrency": adapter.concurrency,
        "targets": [{"target": target.target, "aliases": list(target.aliases), "concurrency": target.concurrency,
                     "ready": target.ready, "detail": target.detail, "retry_safe": target.retry_safe}
                    for target in adapter.targets],
    }


def _run_dict(run: Any) -> dict[str, Any]:
    told = {name: value for name, value in msgspec.structs.asdict(run).items()
            if name in ("run_id", "attempt", "adapter", "target", "pid")}
    outcome = outcome_dict(Outcome.FromString(run.outcome)) if run.outcome else None
    return told | {"state": run.kind or "running", "accepted_at": rfc3339(run.accepted_us), "ended_at": rfc3339(run.ended_us),
                   "outcome": outcome}
