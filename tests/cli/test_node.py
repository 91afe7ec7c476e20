"""`iop node`: whom it asks, and what it says where there is nobody."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from iop.cli.local import LocalNode, local_nodes
from iop.cli.main import main
from iop.errors import ConfigError, NoSuchNode
from iop.tap.statelock import NAME, StateLock


@pytest.fixture
def iop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("IOP_URL", raising=False)
    return lambda *words: CliRunner().invoke(main, words, catch_exceptions=False)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir(mode=0o700)
    file = tmp_path / "node.yaml"
    file.write_text("node: {id: n1, state: state}\nedge: {plain: true}\n")
    return file


def test_where_no_node_runs_there_is_none_to_start_again(iop: Callable[..., Result], config: Path) -> None:
    for words in (("-c", str(config)), ("--state", str(config.parent / "state")), ()):
        told = iop("node", "restart", *words)
        assert told.exit_code == 3 and "No node" in told.output


def test_a_process_that_is_no_node_gets_no_signal(tmp_path: Path) -> None:
    """The lock of a node that was killed names a pid that may be anyone's by now; here, ours."""
    assert StateLock(str(tmp_path)).take()
    with pytest.raises(NoSuchNode):
        LocalNode(tmp_path).ask()


def test_the_nodes_of_a_folder_are_its_own_or_those_below_it(tmp_path: Path) -> None:
    for name in ("node-2", "node-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / NAME).touch()
    assert [node.name for node in local_nodes(tmp_path)] == ["node-1", "node-2"]
    assert [node.name for node in local_nodes(tmp_path / "node-2")] == ["node-2"]
    assert [node.name for node in local_nodes(tmp_path / "node-2", "gpu-1")] == ["gpu-1"]


def test_what_the_node_refuses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = StateLock(str(tmp_path))
    assert lock.take()

    def refuse(pid: int) -> bool:
        lock.restart_asked("line 3: no.")
        return pid == os.getpid()

    monkeypatch.setattr("iop.cli.local._signal_node", refuse)
    with pytest.raises(ConfigError, match="goes on as it was: line 3: no."):
        LocalNode(tmp_path).ask()


def test_a_node_of_the_edge_and_a_configuration_do_not_go_together(iop: Callable[..., Result], config: Path) -> None:
    assert iop("node", "restart", "n1", "-c", str(config)).exit_code == 2


class Edge:
    """Answers with one state of a node after the other; the last one stays."""

    def __init__(self, *states: dict[str, Any]) -> None:
        self.states = list(states)

    def get(self, path: str) -> dict[str, Any]:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert (path, body) == ("/api/v1/nodes/n1/commands", {"line": "restart"})
        return {"result": {"running": 1}}


@pytest.mark.parametrize("drained", [False, True])
def test_a_node_is_ready_again_on_a_later_link_where_it_takes_what_it_took(
        iop: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, drained: bool) -> None:
    edge = Edge({"epoch": 4, "state": "up", "draining": drained}, {"epoch": 4, "state": "up", "draining": True},
                {"epoch": 4, "state": "down", "draining": True}, {"epoch": 5, "state": "up", "draining": drained})
    monkeypatch.setattr("iop.cli.node.find_edge", lambda state: edge)
    monkeypatch.setattr("iop.cli.node.READY_S", 5.0)
    told = iop("node", "restart", "n1")
    assert told.exit_code == 0 and "under way: 1 run\n" in told.stderr and "n1 is ready again" in told.stdout
    assert len(edge.states) == 1


def test_a_sweep_needs_a_configuration_and_tells_what_it_did(
        iop: Callable[..., Result], config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert iop("node", "sweep").exit_code == 2
    assert iop("node", "sweep", "-c", str(config), "--json").output == '{"swept":true,"left":0}\n'
    monkeypatch.setenv("SERVICE_RESULT", "watchdog")
    assert iop("node", "sweep", "-c", str(config), "--json", "--unless-restarting").output == '{"swept":false,"left":0}\n'
