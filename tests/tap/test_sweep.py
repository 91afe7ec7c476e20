"""What is ended after a node's stop, and what is left to the start that follows a crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iop.config import NodeConfig, load_identity, load_node
from iop.errors import ConfigError, Conflict
from iop.tap.statelock import StateLock, node_marker
from iop.tap.sweep import comes_back, sweep


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    file = tmp_path / "node.yaml"
    file.write_text("node: {id: n1, state: state}\nedge: {plain: true}\n")
    (tmp_path / "state").mkdir(mode=0o700)
    return load_node(str(file))


@pytest.mark.parametrize(("environment", "expected"), [
    ({"SERVICE_RESULT": "signal", "EXIT_CODE": "killed", "EXIT_STATUS": "KILL"}, True),
    ({"SERVICE_RESULT": "watchdog", "EXIT_CODE": "dumped", "EXIT_STATUS": "ABRT"}, True),
    ({"SERVICE_RESULT": "exit-code", "EXIT_CODE": "exited", "EXIT_STATUS": "1"}, True),
    ({"SERVICE_RESULT": "exit-code", "EXIT_CODE": "exited", "EXIT_STATUS": "78"}, False),
    ({"SERVICE_RESULT": "success", "EXIT_CODE": "exited", "EXIT_STATUS": "0"}, False),
    ({"SERVICE_RESULT": "timeout", "EXIT_CODE": "killed", "EXIT_STATUS": "KILL"}, False),
    ({}, False),
])
def test_a_node_comes_back_after_a_crash_and_not_after_a_stop(environment: dict[str, str], expected: bool) -> None:
    assert comes_back(environment) is expected


def test_what_carries_the_marker_of_the_node_is_ended_and_nothing_else(config: NodeConfig) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    theirs, other = (subprocess.Popen(command, env={**os.environ, "IOP_NODE": marker}, start_new_session=True)
                     for marker in (node_marker(config), "n1.other"))
    try:
        deadline = time.monotonic() + 30
        while f"IOP_NODE={node_marker(config)}" not in Path(f"/proc/{theirs.pid}/environ").read_text():
            assert time.monotonic() < deadline
        assert sweep(config) == 0
        assert theirs.wait(10) in (-signal.SIGTERM, -signal.SIGKILL) and other.poll() is None
    finally:
        for process in (theirs, other):
            process.kill()
            process.wait()


def test_while_a_node_runs_it_ends_its_programs_itself(config: NodeConfig) -> None:
    lock = StateLock(config.state)
    assert lock.take()
    with pytest.raises(Conflict):
        sweep(config)


def test_a_node_that_never_ran_left_nothing(config: NodeConfig) -> None:
    os.rmdir(config.state)
    assert sweep(config) == 0


def test_a_fault_elsewhere_in_the_file_does_not_hide_whose_programs_they_are(config: NodeConfig) -> None:
    place = load_identity(config.file)
    Path(config.file).write_text("node: {id: n1, state: state}\nedge: {plain: true}\npolcy: {}\n")
    assert load_identity(config.file) == place == ("n1", config.state)


@pytest.mark.parametrize("text", ["", "- n1\n", "edge: {plain: true}\n", "node: {id: [\n", "node: {state: state}\n"])
def test_a_file_that_names_no_node_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "node.yaml").write_text(text)
    with pytest.raises(ConfigError):
        load_identity(str(tmp_path / "node.yaml"))
