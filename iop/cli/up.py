"""`iop up`: an edge and its node(s) on this machine, as twistd would run them, until Ctrl-C."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from iop.cli import targets
from iop.cli.base import examples
from iop.cli.children import Child, Children, Signals, end_leftovers
from iop.cli.find import default_state
from iop.cli.layout import HOST, Layout, Ports, Settled, Wish
from iop.errors import ConfigError
from iop.files import remove_ready, take_lock, write_ready

_PORT = click.IntRange(0, 65535)


@click.command("up", short_help="Bring up an edge and its node(s) on this machine.", epilog=examples(
    "iop up", "iop up --cli hello='echo {prompt}'", "iop up --openai smollm2=http://127.0.0.1:8080/v1",
    "iop up --ollama llama=http://127.0.0.1:11434#llama3.2 --nodes 2"))
@click.option("--state", metavar="DIR", help="State folder, made 0700; one that exists is continued. Default: "
              "~/.local/state/iop.")
@click.option("--http-port", type=_PORT, default=0, metavar="N", help="Of the API; default (or 0): that of last "
              "time, else any free one.")
@click.option("--link-port", type=_PORT, default=0, metavar="N", help="Likewise, for the nodes' links.")
@click.option("--console-port", type=_PORT, default=0, metavar="N", help="Likewise, for the SSH console.")
@click.option("--ready-file", metavar="F", help="Also write the ready file here, once a node is ready.")
@click.option("--cli", "programs", multiple=True, metavar="NAME='PROG ARG {prompt}'", help="A program as target; split as a "
              "shell would, without a shell; {prompt} is one argument; without it the prompt goes to standard input.")
@click.option("--openai", multiple=True, metavar="NAME=URL[#MODEL]", help="A model behind an OpenAI-compatible API.")
@click.option("--vllm", multiple=True, metavar="NAME=URL[#MODEL]", help="A model behind vLLM.")
@click.option("--ollama", multiple=True, metavar="NAME=URL[#MODEL]", help="A model behind Ollama.")
@click.option("--nodes", type=click.IntRange(0, 32), default=0, metavar="N", help="How many nodes; default: as last time, "
              "else 1.")
def up_command(*, state: str | None, http_port: int, link_port: int, console_port: int, ready_file: str | None,
               programs: tuple[str, ...], openai: tuple[str, ...], vllm: tuple[str, ...], ollama: tuple[str, ...],
               nodes: int) -> None:
    """Bring up an edge and its node(s) on this machine's loopback; Ctrl-C ends all of it.

    Whoever types a target here owns the node, so the node's policy allows it. Without any target, those of last time are
    offered, or a mock one called echo. A process that dies is started again.
    """
    wish = Wish(ports=Ports(http=http_port, link=link_port, console=console_port), nodes=nodes,
                targets=[*(targets.program(text) for text in programs),
                         *(targets.model("openai", text) for text in openai),
                         *(targets.model("vllm", text) for text in vllm),
                         *(targets.model("ollama", text) for text in ollama)])
    Up(Layout(Path(state or click.get_current_context().obj or default_state()).absolute()),
       Path(ready_file).absolute() if ready_file else None).run(wish)


class Up:
    """One `iop up`, from its lock on the state folder to the end of its last child."""

    def __init__(self, layout: Layout, ready_file: Path | None, tell: Callable[[str], None] | None = None) -> None:
        self._layout = layout
        self._ready_files = [layout.ready_file, *([ready_file] if ready_file else [])]
        self._tell = tell or (lambda text: click.echo(f"iop: {text}"))
        self._edge: Child
        self._nodes: list[Child]
        self._settled: Settled
        self._told = False

    def run(self, wish: Wish) -> None:
        signals = Signals()
        signals.install()
        layout = self._layout
        layout.create()
        with _lock(layout.folder):
            end_leftovers(layout.folder, self._tell)
            self._remove_ready()
            self._settled = layout.settle(wish, self._tell)
            self._tell(f"state folder {shown_path(layout.folder)}")
            self._edge = Child("edge", "iop-edge", layout.edge / "edge.yaml", "edge.ready.json")
            self._nodes = [Child(f"node-{number}", "iop-node", layout.node(number) / "node.yaml", "node.ready.json")
                           for number in range(1, self._settled.nodes + 1)]
            try:
                Children([self._edge, *self._nodes], self._tell, self._write_ready, self._ready).run(signals)
            finally:
                self._remove_ready()
                self._sweep()
            self._tell("all stopped")

    def _sweep(self) -> None:
        """A node that did not end in order leaves its programs for its next start, and there is none."""
        for number, node in enumerate(self._nodes, 1):
            if node.exit_code != 0:
                from iop.tap.sweep import sweep_folder  # here, since few need it and it imports for 0.5 s

                sweep_folder(node.name, str(self._layout.node(number)))

    def _write_ready(self) -> dict[str, Any]:
        value = self._ready_value()
        for file in self._ready_files:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_ready(file, value)
        return value

    def _ready(self) -> None:
        value = self._write_ready()
        if self._told:
            self._tell("all ready again")
            return
        self._told = True
        target = self._settled.targets[0]
        self._tell(f"ready at {value['http']}")
        if target.adapter == "mock":
            self._tell("echo is a mock; declare real targets with --cli, --openai, --ollama")
        self._tell(f"try:     iop run -a {target.adapter} -t {target.name} \"hello\"" + self._state_option())
        self._tell(f"console: ssh -F {shown_path(self._layout.ssh_config)} edge")
        self._tell("Ctrl-C ends all of it")

    def _ready_value(self) -> dict[str, Any]:
        told = json.loads((self._layout.edge / "edge.ready.json").read_text())
        ports = self._settled.ports
        console = told.get("console")
        return {"http": f"http://{HOST}:{ports.http}", "link": f"{HOST}:{ports.link}", "console": console,
                "console_key": str(self._layout.console_key) if console else None, "api_key": self._layout.api_key(),
                "edge_pid": self._edge.pid, "node_pids": [node.pid for node in self._nodes],
                "state": str(self._layout.folder)}

    def _state_option(self) -> str:
        return "" if self._layout.folder == default_state() else f" --state {shown_path(self._layout.folder)}"

    def _remove_ready(self) -> None:
        for file in self._ready_files:
            remove_ready(file)


def shown_path(path: Path) -> str:
    """A path as a person would type it."""
    home = Path.home()
    word = shlex.quote(str(path))
    return f"~/{path.relative_to(home)}" if word == str(path) and home in path.parents else word


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """One `iop up` at a time on a folder."""
    file = folder / "lock"
    descriptor = take_lock(file)
    if descriptor is None:
        raise ConfigError(f"`iop up` is running on {folder} already (pid {file.read_text() or 'unknown'}).",
                          hint="End that one, or choose another folder with --state DIR.")
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)
