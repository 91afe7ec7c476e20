"""The edge's commands, for its console and whoever else takes a command table. Thin: each asks the IEdgeService."""

from __future__ import annotations

import shlex
from typing import Any, Literal

import msgspec

from iop import rendering
from iop.commandline import UsageError
from iop.commands import Caller, CommandTable, help_text
from iop.edge.routes_runs import since_us
from iop.edge.routes_usage import groupings
from iop.edge.streams import LifeStream, RunStream, ToldError
from iop.errors import NoSuchTarget
from iop.exits import verified
from iop.interfaces import IEdgeService
from iop.proto import run_pb2
from iop.records import GROUPINGS, RunQuery, UsageQuery
from iop.runs import STATES, EventId

State = Literal["", *STATES]  # type: ignore[valid-type]
RUN_COLUMNS = (("RUN", "run_id"), "state", ("TARGET", lambda run: f"{run['adapter']}/{run['target']}"), ("NODE", "node_id"),
               ("CREATED", lambda run: _minute(run["created_at"])))
NODE_COLUMNS = (("NODE", "node_id"), ("STATE", lambda node: node["state"] + (", draining" if node["draining"] else "")),
                "running", ("LOAD", lambda node: rendering.load_text(node["load"])),
                ("TARGETS", lambda node: [f"{t['adapter']}/{t['target']}" for t in node["targets"]]),
                "labels", "version")
USAGE_COLUMNS = ("key", "model", "node", "runs", ("PROMPT", "prompt_tokens"), ("ANSWER", "completion_tokens"),
                 ("CACHED", "cached_tokens"), ("TOTAL", "total_tokens"))
SESSION_COLUMNS = (("SESSION", "session_id"), ("NODE", "node_id"), ("TARGET", lambda s: f"{s['adapter']}/{s['target']}"),
                   "runs", ("USED", lambda s: _minute(s["used_at"])), ("CLOSED", lambda s: _minute(s["closed_at"])))


def edge_commands(edge: IEdgeService) -> CommandTable:
    """The table of one edge. The context of its commands is an iop.commands.Caller."""
    table = CommandTable()
    _node_commands(table, edge)
    _run_commands(table, edge)
    _look_commands(table, edge)
    _event_commands(table, edge)
    _session_commands(table, edge)

    @table.completer("node")
    def node_ids(caller: Caller) -> list[str]:
        return [node.node_id for node in edge.nodes()]

    @table.completer("target")
    def targets(caller: Caller) -> list[str]:
        return [word for entry in edge.models() for word in (entry.name, f"{entry.adapter}/{entry.target}")]

    @table.completer("run")
    async def run_ids(caller: Caller) -> list[str]:
        found, _ = await edge.runs(RunQuery(limit=50))
        return [record.run_id for record in found]

    @table.completer("session")
    async def session_ids(caller: Caller) -> list[str]:
        return [record.session_id for record in await edge.sessions()]

    return table


def _node_commands(table: CommandTable, edge: IEdgeService) -> None:
    @table.command(scope="nodes:read", columns=NODE_COLUMNS)
    def nodes(caller: Caller) -> list[dict[str, Any]]:
        """List the nodes, what they offer and how busy they are."""
        return [view.as_dict() for view in edge.nodes()]

    @table.command(scope="nodes:read")
    def node(caller: Caller, node: str) -> dict[str, Any]:
        """Show one node with all its targets. Example: node gpu-1"""
        return edge.node(node).as_dict()

    @table.command(scope="nodes:write", changes=True, text=_node_text)
    async def label(caller: Caller, node: str, *changes: str) -> dict[str, Any]:
        """Set labels of a node, or remove them. A value is set by key=value; key= or -key removes.

        Runs may ask for labels; a node must carry them all to be given the run.
        Examples: label gpu-1 room=lab gpu=a100 · label gpu-1 -room
        """
        return (await edge.label(node, _label_changes(changes), caller.source)).as_dict()

    @table.command(scope="nodes:write", changes=True, text=_node_text)
    async def drain(caller: Caller, node: str) -> dict[str, Any]:
        """Give a node no new runs. What runs there already goes on. Example: drain gpu-1"""
        return (await edge.drain(node, True, caller.source)).as_dict()

    @table.command(scope="nodes:write", changes=True, text=_node_text)
    async def undrain(caller: Caller, node: str) -> dict[str, Any]:
        """Give a drained node runs again. Example: undrain gpu-1"""
        return (await edge.drain(node, False, caller.source)).as_dict()

    @table.command(scope="nodes:write", changes=True, verbatim=True, text=_answer_text)
    async def cmd(caller: Caller, node: str, *line: str, timeout: float = 30.0) -> Any:  # noqa: ASYNC109
        """Have a node carry out one of its own commands, and show what it answers.

        What follows NODE is the node's command line. Examples: cmd gpu-1 help · cmd gpu-1 status
        """
        if not line:
            raise UsageError("LINE is missing; `cmd NODE help` lists the node's commands.")
        answer = await edge.command(node, _join(line), caller.source, timeout)
        if not answer.ok:
            raise ToldError(answer.code or "internal_error", answer.message or "The node refused the command.")
        return msgspec.json.decode(answer.result) if answer.result else None


def _run_commands(table: CommandTable, edge: IEdgeService) -> None:
    @table.command(scope="runs:write", changes=True)
    async def run(caller: Caller, target: str, *prompt: str, session: str = "",
                  timeout: float = 0.0,  # noqa: ASYNC109 - a run's limit, not this call's
                  priority: int = 0, detach: bool = False) -> Any:
        """Run a prompt on a target and show its output as it comes.

        TARGET is a model's alias, adapter/target or node/adapter/target. Ctrl-C cancels the run, and so does leaving;
        with --detach only the run's id is shown and it goes on by itself. Put -- before a prompt with words like --this.
        Examples: run tiny "why is the sky blue?" · run cli/fix --session s1 --detach mend the tests
        """
        if not prompt:
            raise UsageError("PROMPT is missing; usage: run TARGET PROMPT...")
        request = _request(edge, target, " ".join(prompt), session, timeout, priority)
        if not detach:
            request.detach_s = 0.0
        record = await edge.submit(request, caller.source)
        if detach:
            return {"run_id": record.run_id, "state": record.state}
        note = "it waits until a node that offers it is ready and free" if record.state == "queued" else ""
        return RunStream(edge, record.run_id, EventId(0, 0), owner=caller.source, note=note)

    @table.command(scope="runs:write", changes=True)
    async def cancel(caller: Caller, run: str, *, reason: str = "") -> dict[str, Any]:
        """End a run. A run that has ended already stays as it ended. Example: cancel 0199…"""
        return (await edge.cancel(run, caller.source, reason)).as_dict()


def _look_commands(table: CommandTable, edge: IEdgeService) -> None:
    @table.command(scope="runs:read", columns=RUN_COLUMNS, rows="runs")
    async def runs(caller: Caller, *, state: State = "", adapter: str = "", target: str = "", node: str = "",
                   session: str = "", limit: int = 20, cursor: str = "") -> dict[str, Any]:
        """List runs, the newest first.

        STATE is queued, placed, running, disconnected, completed, failed, cancelled or unknown; CURSOR is the `next` of the
        list before, in --json. Examples: runs --state failed · runs --node gpu-1 --limit 5
        """
        if not 1 <= limit <= 1000:
            raise UsageError("--limit is between 1 and 1000.")
        found, following = await edge.runs(RunQuery(state=state, adapter=adapter, target=target, node_id=node,
                                                    session_id=session, limit=limit, cursor=cursor))
        return {"runs": [record.as_dict() for record in found], "next": following}

    @table.command(scope="runs:read")
    async def show(caller: Caller, run: str) -> dict[str, Any]:
        """Show one run: where it ran and why, how it ended, what it used. Example: show 0199…"""
        record = await edge.run(run)
        return record.as_dict() | {"position": edge.position(record.run_id) or None}

    @table.command(scope="runs:read", columns=USAGE_COLUMNS, rows="usage")
    async def usage(caller: Caller, *, by: str = "key,model", since: str = "") -> dict[str, Any]:
        """Show runs and tokens by key, model and node, the most first.

        BY is some of key, model and node with commas between them, or total; SINCE is a time. Examples: usage ·
        usage --by node --since 2026-12-01T00:00:00Z
        """
        query = UsageQuery(by=groupings(by), since_us=since_us(since))
        return {"usage": [row.as_dict(GROUPINGS) for row in await edge.usage(query)]}


def _event_commands(table: CommandTable, edge: IEdgeService) -> None:
    @table.command(scope="runs:read", text=rendering.findings_text, exit_code=verified)
    async def verify(caller: Caller, run: str) -> dict[str, Any]:
        """Recompute from history whether it has a run whole.

        Every event once, in order, and the output as its node told it with the run's ending. Example: verify 0199…
        """
        return (await edge.verify(run)).as_dict()

    @table.command(scope="runs:read")
    async def tail(caller: Caller, run: str, *, after: str = "") -> RunStream:
        """Show a run's events from the start, and go on until it ends. Ctrl-C ends the looking, not the run.

        With --after ID only what follows that event. Example: tail 0199… --after 1.7
        """
        place = EventId.parse(after)
        await edge.run(run)
        return RunStream(edge, run, place)

    @table.command(scope="events:read")
    def events(caller: Caller, *, after: int | None = None, limit: int = 20, follow: bool = False) -> LifeStream:
        """Show what happened to nodes, links and runs. With --follow it goes on until Ctrl-C. Example: events --follow"""
        if not 1 <= limit <= 1000:
            raise UsageError("--limit is between 1 and 1000.")
        return LifeStream(edge, after, limit, follow)

    @table.command(scope="metrics:read")
    def health(caller: Caller) -> dict[str, Any]:
        """Tell whether this edge is ready, and if not, why."""
        return edge.health()


def _session_commands(table: CommandTable, edge: IEdgeService) -> None:
    @table.command(scope="runs:read", columns=SESSION_COLUMNS)
    async def sessions(caller: Caller) -> list[dict[str, Any]]:
        """List the conversations that later runs can continue, and the node that holds each."""
        return [record.as_dict() for record in await edge.sessions()]

    @table.command(scope="runs:write", changes=True)
    async def close_session(caller: Caller, session: str) -> dict[str, Any]:
        """Let no further run continue a session. Example: close-session s1"""
        return (await edge.close_session(session, caller.source)).as_dict()


def _minute(moment: str | None) -> str:
    return str(moment or "")[5:16].replace("T", " ")


def _node_text(view: dict[str, Any]) -> str:
    return rendering.table([view], NODE_COLUMNS)


def _answer_text(answer: Any) -> str:
    """A node's answer; its `help` looks like ours."""
    if isinstance(answer, dict) and (set(answer) == {"commands"} or {"usage", "help"} <= set(answer)):
        return help_text(answer)
    return rendering.result_text(answer)


def _request(edge: IEdgeService, target: str, prompt: str, session: str, timeout: float, priority: int) -> run_pb2.RunRequest:
    if timeout < 0:
        raise UsageError("--timeout is a number of seconds.")
    if not -(2 ** 31) <= priority < 2 ** 31:
        raise UsageError("--priority is a small whole number.")
    try:
        edge.targets(target)
    except NoSuchTarget:
        raise NoSuchTarget(f"There is no target {target[:100]!r} here.", hint="A target is named by its alias or as "
                           "adapter/target; `nodes` lists them.") from None
    return run_pb2.RunRequest(target=target, prompt=prompt, session_id=session, priority=priority,
                              limits=run_pb2.Limits(run_s=timeout))


def _label_changes(words: tuple[str, ...]) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals and not word.startswith("-"):
            raise UsageError(f"{word[:40]!r} sets nothing; say key=value, or key= to remove it.")
        changes[key.removeprefix("-") if not equals else key] = value or None
    if not changes or "" in changes:
        raise UsageError("Say what to change: key=value sets a label, key= or -key removes it.")
    return changes


def _join(words: tuple[str, ...]) -> str:
    # One word is a line that was quoted whole; several are words of it.
    return words[0] if len(words) == 1 else shlex.join(words)
