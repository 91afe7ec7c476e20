"""`iop drain`: a node that is given no new runs, and the wait until the last of its runs has ended."""

from __future__ import annotations

import time
from typing import Any

import click

from iop.cli.base import examples, json_option, with_edge
from iop.cli.client import Client
from iop.cli.errors import StillRunning
from iop.cli.output import print_json
from iop.cli.paths import node_path
from iop.rendering import counted, safe_line

LOOK_S = 0.5             # between two looks at the node while waiting


@click.command("drain", short_help="Give a node no new runs, and wait until its runs have ended.", epilog=examples(
    "iop drain gpu-1", "iop drain gpu-1 --wait --timeout 600", "iop drain gpu-1 --off"))
@click.argument("node_id", metavar="NODE")
@click.option("--off", is_flag=True, help="Give it runs again.")
@click.option("--wait", is_flag=True, help="Return once its last run has ended.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="S",
              help="Wait at most S seconds; the node stays drained.")
@json_option
@with_edge
def drain_command(edge: Client, *, node_id: str, off: bool, wait: bool, timeout: float | None, as_json: bool) -> None:
    """Give NODE no new runs. What runs there goes on, what waits in the queue goes to other nodes.

    The exit code is 0 when that is so, with --wait when no run is left there; 1 when runs are left after --timeout; 130 when
    the wait is broken off by Ctrl-C, and the node stays drained.
    """
    if off and (wait or timeout is not None):
        raise click.UsageError("--off ends the drain; there is nothing to wait for.")
    if timeout is not None and not wait:
        raise click.UsageError("--timeout belongs to --wait.")
    path = node_path(node_id)
    node = edge.call("PATCH", path, body={"drain": not off})
    if wait:
        node = _wait(edge, path, node, timeout, as_json)
    if as_json:
        print_json(node)
    else:
        click.echo(safe_line(_told(node)))


def _wait(edge: Client, path: str, node: dict[str, Any], timeout_s: float | None, as_json: bool) -> dict[str, Any]:
    deadline = time.monotonic() + timeout_s if timeout_s is not None else float("inf")
    said = ""
    while node["running"]:
        if (line := _told(node)) != said and not as_json:
            click.echo(safe_line(f"[{line}]"), err=True)
            said = line
        left = deadline - time.monotonic()
        if left <= 0:
            raise StillRunning(_told(node))
        time.sleep(min(LOOK_S, left))
        node = edge.get(path)
    return node


def _told(node: dict[str, Any]) -> str:
    name, running = node["node_id"], node["running"]
    if not node["draining"]:
        return f"{name} takes runs again."
    where = "" if node["state"] == "up" else ", and is not connected"
    return f"{name} takes no new runs; " + (f"{counted(running, 'run')} still there{where}." if running else "none is there.")
