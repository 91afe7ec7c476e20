"""`iop node`: have a node start again in place, here or by way of its edge; end what one left running; its models."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import click

from iop.cli.base import Group, examples, json_option
from iop.cli.client import Client
from iop.cli.errors import ApiError, EdgeGone, NoEdge, NotReady, ProcessesLeft
from iop.cli.find import default_state, find_edge
from iop.cli.local import LocalNode, local_nodes
from iop.cli.models import load_command, models_command, pull_command, unload_command
from iop.cli.output import print_json
from iop.cli.paths import node_path
from iop.config import load_identity, load_node
from iop.errors import InvalidRequest
from iop.rendering import counted

READY_S = 60.0           # 20 s for what has no supervisor, 5 s to put away, and a start


@click.group("node", cls=Group, epilog=examples("iop node restart", "iop node restart gpu-1", "iop node sweep -c node.yaml"))
def node_group() -> None:
    """Start a node again, sweep behind one, look after its models."""


for _command in (models_command, load_command, unload_command, pull_command):
    node_group.add_command(_command)


_config_option = click.option("-c", "--config", metavar="NODE.YAML", help="The configuration of a node of this machine.")


@node_group.command("restart", short_help="Start a node again in place; its programs go on.", epilog=examples(
    "iop node restart                  # the nodes of `iop up`", "iop node restart -c /etc/iop/node.yaml",
    "iop node restart gpu-1            # by way of the edge"))
@click.argument("node_id", metavar="[NODE]", required=False)
@_config_option
@click.option("--state", metavar="DIR", help="A node's state folder, or that of `iop up`; with NODE, that of the edge.")
@json_option
@click.pass_context
def restart_command(context: click.Context, node_id: str | None, config: str | None, state: str | None,
                    as_json: bool) -> None:
    """Have a node start again in place, with the code and configuration that are there now, and wait until it is ready.

    Programs go on, and their output is not lost. Other runs, such as a model's answer, have 20 s to end; what has not
    ended by then ends as node_restarted. A configuration that the node refuses changes nothing. Without NODE, it is a node
    of this machine, which this user may signal.
    """
    state = state if state is not None else context.obj
    if node_id is not None:
        if config is not None:
            raise InvalidRequest("NODE and --config do not go together: the one is asked of an edge, the other here.")
        _show(_restart_there(find_edge(state), node_id), as_json)
        return
    known = load_node(os.path.abspath(config)) if config else None
    folder = Path(known.state if known else state or default_state()).absolute()
    for node in local_nodes(folder, known.node.id if known else ""):
        _show(_restart_here(node), as_json)


@node_group.command("sweep", short_help="End what a node that has ended left running.", epilog=examples(
    "iop node sweep -c /etc/iop/node.yaml"))
@_config_option
@click.option("--unless-restarting", is_flag=True, help="Do nothing after a crash behind which systemd starts the node "
              "again (as ExecStopPost=).")
@json_option
def sweep_command(config: str | None, unless_restarting: bool, as_json: bool) -> None:
    """End every program that carries the mark of a node which has ended.

    A node ends its programs itself when it is stopped, and takes them up when it is started after a crash. This is for the
    one that does neither: it was killed while it stopped, say, or is not to come back.
    """
    from iop.tap.sweep import comes_back, sweep_folder  # here, since it imports for 0.5 s

    if config is None:
        raise InvalidRequest("Name the node's configuration: -c NODE.YAML.")
    left = 0
    skipped = unless_restarting and comes_back(os.environ)
    if not skipped:
        left = sweep_folder(*load_identity(config))
    if as_json:
        print_json({"swept": not skipped, "left": left})
    if left:
        raise ProcessesLeft(f"{left} processes of this node cannot be ended.")


def _restart_here(node: LocalNode) -> dict[str, Any]:
    """On this machine: USR2 to its process. Raises what it refuses, or NotReady."""
    began = time.monotonic()
    before = node.ask()
    _tell(f"{node.name} (pid {before.pid}) has been asked; runs that it drives itself have 20 s to end")
    shown = False
    while time.monotonic() < began + READY_S:
        held = node.after(before)
        if held is not None and held.instance != before.instance:
            if not shown:
                shown = True
                _tell(f"{node.name} has started again")
            if node.is_ready(held.pid):
                return {"node": node.name, "pid": held.pid, "seconds": round(time.monotonic() - began, 1)}
        time.sleep(0.1)
    raise NotReady(f"{node.name} was not ready again within {READY_S:.0f} s.")


def _restart_there(edge: Client, node_id: str) -> dict[str, Any]:
    """By way of the edge: a command of the node, then a link of a later epoch."""
    path = node_path(node_id)
    began = time.monotonic()
    before = edge.get(path)
    answer = edge.post(f"{path}/commands", {"line": "restart"})
    _tell(f"{node_id} has been asked; under way: {counted(answer['result']['running'], 'run')}")
    while time.monotonic() < began + READY_S:
        try:
            node = edge.get(path)
        except (EdgeGone, NoEdge, ApiError):
            node = {}
        takes_runs = not node.get("draining") or before["draining"]      # what an operator has drained stays so
        if node.get("epoch", 0) > before["epoch"] and node["state"] == "up" and takes_runs:
            return {"node": node_id, "pid": None, "seconds": round(time.monotonic() - began, 1)}
        time.sleep(0.1)
    raise NotReady(f"{node_id} was not ready again within {READY_S:.0f} s.")


def _tell(text: str) -> None:
    click.echo(text, err=True)


def _show(told: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(told)
    else:
        click.echo(f"{told['node']} is ready again after {told['seconds']} s")
