"""`iop node models`, `load`, `unload`, `pull`: the models of a node, by way of its edge; progress while it takes."""

from __future__ import annotations

import shlex
from typing import Any

import click

from iop.cli.base import examples, json_option, with_edge
from iop.cli.client import Client
from iop.cli.output import print_json, print_table
from iop.cli.paths import node_path
from iop.errors import InvalidRequest, NoSuchNode
from iop.rendering import safe_line

WAIT_S = 2.0             # the node tells how far it is that often
TIMEOUT_S = 60.0

_COLUMNS = (("MODEL", "target"), ("STATE", "state"),
            ("LOADED", lambda row: f"{row['progress']:.0%}" if row["progress"] else ""),
            ("RUNS", lambda row: row["users"] or ""), ("CONTEXT", lambda row: row["context_tokens"] or ""), "server")
_node_option = click.option("--node", metavar="NODE", default="", help="Which node; needed where there are several.")


@click.command("models", short_help="List a node's models, and which are in memory.", epilog=examples(
    "iop node models", "iop node models --node gpu-1 --json"))
@_node_option
@json_option
@with_edge
def models_command(edge: Client, *, node: str, as_json: bool) -> None:
    """List the models of a node, whether they are in memory, and the servers that it started for them.

    LOADED is how far one is that loads, where its server says so; RUNS are those that use it now.
    """
    rows = _asked(edge, _which(edge, node), "models")
    if as_json:
        print_json(rows)
    else:
        print_table(rows, _COLUMNS)
        for row in rows:
            if row["detail"]:
                click.echo(safe_line(f"{row['target']}: {row['detail']}"), err=True)


@click.command("load", short_help="Have a model in memory before a run needs it.", epilog=examples(
    "iop node load openai/tiny", "iop node load tiny --node gpu-1"))
@click.argument("target", metavar="TARGET")
@_node_option
@json_option
@with_edge
def load_command(edge: Client, *, target: str, node: str, as_json: bool) -> None:
    """Load a model, and wait until it is there. Ctrl-C ends the waiting, not the loading."""
    _follow(edge, _which(edge, node), ["load", target], as_json, "loading ")


@click.command("unload", short_help="Take a model out of memory.", epilog=examples("iop node unload openai/tiny"))
@click.argument("target", metavar="TARGET")
@_node_option
@json_option
@with_edge
def unload_command(edge: Client, *, target: str, node: str, as_json: bool) -> None:
    """Take a model out of memory; refused while a run uses its server."""
    told = _asked(edge, _which(edge, node), "unload", target)
    _show(told, f"{target} is unloaded", as_json)


@click.command("pull", short_help="Fetch a model from Ollama's library.", epilog=examples(
    "iop node pull llama3.2:3b", "iop node pull qwen3 --node gpu-1 --target ollama/small"))
@click.argument("name", metavar="NAME")
@click.option("--target", metavar="TARGET", default="", help="A target of the Ollama that shall have it; needed where there "
              "are several.")
@_node_option
@json_option
@with_edge
def pull_command(edge: Client, *, name: str, target: str, node: str, as_json: bool) -> None:
    """Have a node's Ollama fetch a model, and wait until it is there. Ctrl-C ends the waiting, not the fetching."""
    _follow(edge, _which(edge, node), ["pull", name, *(["--target", target] if target else [])], as_json)


def _follow(edge: Client, node: str, words: list[str], as_json: bool, doing: str = "") -> None:
    """Ask again until it is over, and show how far it is."""
    shown = ""
    while True:
        told = _asked(edge, node, *words, "--wait", f"{WAIT_S:g}")
        if told["ended"]:
            _show(told, f"{words[1]} is there", as_json)
            return
        line = safe_line(doing + told["detail"] if told["detail"] else "it is under way")
        if told["progress"]:
            line += f", {told['progress']:.0%}"
        if line != shown:
            shown = line
            click.echo(line, err=True)


def _show(told: dict[str, Any], sentence: str, as_json: bool) -> None:
    if as_json:
        print_json(told)
    else:
        click.echo(safe_line(sentence))


def _which(edge: Client, node: str) -> str:
    """The one that was named, or the only one. Raises InvalidRequest."""
    if node:
        return node
    nodes = [one["node_id"] for one in edge.get("/api/v1/nodes")["nodes"]]
    if not nodes:
        raise NoSuchNode("This edge has no node.")
    if len(nodes) > 1:
        raise InvalidRequest(f"There are {len(nodes)} nodes; name one with --node: {', '.join(nodes[:20])}.")
    return str(nodes[0])


def _asked(edge: Client, node: str, *words: str) -> Any:
    """What the node answers to a command line."""
    answer = edge.post(f"{node_path(node)}/commands", {"line": shlex.join(words), "timeout_s": TIMEOUT_S})
    return answer["result"]
