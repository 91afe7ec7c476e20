"""The commands that only look: nodes, runs, show, sessions, events."""

from __future__ import annotations

import sys
from typing import Any

import click

from iop.cli.base import examples, json_option, with_edge
from iop.cli.client import Client
from iop.cli.output import ago, fitted, print_json, print_table
from iop.cli.paths import run_path, session_path
from iop.rendering import fields, life_line, load_text, safe_line
from iop.runs import STATES


@click.command("nodes", epilog=examples("iop nodes", "iop nodes --json"))
@json_option
@with_edge
def nodes_command(edge: Client, *, as_json: bool) -> None:
    """List the nodes and what they offer.

    LOAD is what the machine has to do, in per cent: its processors, its memory, and each graphics processor.
    """
    nodes = _items(edge.get("/api/v1/nodes"), "nodes")
    if as_json:
        print_json(nodes)
        return
    print_table(nodes, (("NODE", "node_id"), ("STATE", _node_state), ("SINCE", lambda node: ago(node["since"])), "running",
                        ("LOAD", lambda node: load_text(node["load"])), ("POLICY", "policy_mode"),
                        ("TARGETS", lambda node: [_target(one) for one in node["targets"]]),
                        "labels"))
    for node in nodes:
        for fault in node["config_faults"]:
            click.echo(safe_line(f"{node['node_id']} refused: {fault}"), err=True)


@click.command("runs", epilog=examples("iop runs", "iop runs --state-is running --json", "iop runs -a cli --limit 5"))
@click.option("--state-is", metavar="STATE", type=click.Choice(STATES), help=f"One of {', '.join(STATES)}.")
@click.option("-a", "--adapter", metavar="ADAPTER", default="", help="Only this adapter's.")
@click.option("-t", "--target", metavar="TARGET", default="", help="Only this target's.")
@click.option("--node", metavar="NODE", default="", help="Only this node's.")
@click.option("--since", default="", metavar="TIME", help="Only those created since, e.g. 2026-12-01T09:50:41Z.")
@click.option("--limit", type=click.IntRange(1, 1000), metavar="N", default=20, show_default=True, help="At most so many.")
@click.option("--cursor", metavar="CURSOR", default="", help="Go on where an earlier list ended.")
@json_option
@with_edge
def runs_command(edge: Client, *, state_is: str | None, adapter: str, target: str, node: str, since: str, limit: int,
                 cursor: str, as_json: bool) -> None:
    """List runs, newest first."""
    answer = edge.get("/api/v1/runs", state=state_is, adapter=adapter, target=target, node=node, since=since, limit=limit,
                      cursor=cursor)
    runs = _items(answer, "runs")
    if as_json:
        for run in runs:
            print_json(run)
        return
    print_table(runs, (("RUN", "run_id"), "state", ("TARGET", lambda run: f"{run['adapter']}/{run['target']}"),
                       ("NODE", "node_id"), ("AGE", lambda run: ago(run["created_at"])), ("CODE", "outcome.code")))
    if isinstance(answer, dict) and answer.get("next"):
        click.echo(f"More with --cursor {answer['next']}", err=True)


@click.command("show", epilog=examples("iop show RUN", "iop show RUN --json"))
@click.argument("run_id", metavar="RUN")
@json_option
@with_edge
def show_command(edge: Client, *, run_id: str, as_json: bool) -> None:
    """Show what is known of one run."""
    run = edge.get(run_path(run_id))
    if as_json:
        print_json(run)
        return
    click.echo(fields(run), nl=False)


@click.command("sessions", epilog=examples("iop sessions", "iop sessions --close S"))
@click.option("--close", metavar="S", help="Close the session S: no later run can continue it.")
@json_option
@with_edge
def sessions_command(edge: Client, *, close: str | None, as_json: bool) -> None:
    """List the sessions that later runs can continue, or close one."""
    if close is not None:
        closed = edge.call("DELETE", session_path(close))
        print_json(closed) if as_json else click.echo(f"{close} is closed.")
        return
    sessions = _items(edge.get("/api/v1/sessions"), "sessions")
    if as_json:
        print_json(sessions)
        return
    print_table(sessions, (("SESSION", "session_id"), ("NODE", "node_id"), "adapter", "target", "runs",
                           ("USED", lambda one: ago(one.get("used_at"))),
                           ("STATE", lambda one: "closed" if one.get("closed_at") else "open")))


@click.command("events", short_help="Show the life of links, nodes and runs, and who did what.", epilog=examples(
    "iop events", "iop events --follow", "iop events --after 17 --json"))
@click.option("--after", metavar="ID", type=click.IntRange(0), help="Only those behind the event with this number.")
@click.option("-f", "--follow", is_flag=True, help="Go on as they happen, until Ctrl-C.")
@click.option("--limit", type=click.IntRange(1, 1000), metavar="N", default=50, show_default=True, help="At most so many.")
@json_option
@with_edge
def events_command(edge: Client, *, after: int | None, follow: bool, limit: int, as_json: bool) -> None:
    """Show the life of links, nodes, configuration and runs, and who did what."""
    answer = edge.get("/api/v1/events", after=after, limit=limit)
    for event in _items(answer, "events"):
        _show_event(event, as_json)
        after = event["id"]
    if follow:
        for sent in edge.events("/api/v1/events", str(after or 0)):
            _show_event(sent.data, as_json)


def _show_event(event: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(event)
        return
    click.echo(fitted(life_line(event) + "\n", sys.stdout, indent=8), nl=False)


def _items(answer: Any, name: str) -> list[dict[str, Any]]:
    return answer[name] if isinstance(answer, dict) else answer


def _node_state(node: dict[str, Any]) -> str:
    return node["state"] + (", draining" if node["draining"] else "")


def _target(target: dict[str, Any]) -> str:
    return f"{target['adapter']}/{target['target']}" + ("" if target["ready"] else " (not ready)")
