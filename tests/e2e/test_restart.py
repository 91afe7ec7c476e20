"""A program's run through kills and restarts of what carries it, and every way of stopping: nothing lost, nothing left."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iop.config import load_node
from iop.node.processes import members
from iop.runs import ENDINGS
from iop.tap.statelock import node_marker
from tests.e2e.up import COUNT, Up, eventually, is_running, processes_with

TWISTD = str(Path(sys.executable).parent / "twistd")
LINES = 100              # of 0.1 s each: what is done to a run is done in its first third
STOPPED_S = 25.0         # 20 s to drain, and what a busy machine takes for the rest


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One `iop up` for all that is done to its children."""
    up = Up(tmp_path_factory.mktemp("up") / "state", "--cli", "count=" + COUNT)
    yield up.wait_ready()
    assert up.stop() == 0, up.words()
    assert left_of(up.state) == []


def left_of(state: Path) -> list[int]:
    """Every process that has to do with this `iop up`: by its command line, or by the marker of its node."""
    marker = "IOP_NODE=" + node_marker(load_node(str(state / "node-1" / "node.yaml")))
    return sorted({*processes_with(str(state)), *(process.pid for process in members(marker.encode(), {}))})


def kill_node(up: Up) -> None:
    before = up.ready
    os.kill(before["node_pids"][0], signal.SIGKILL)
    eventually(lambda: up.ready["node_pids"] != before["node_pids"], "the node is started again", 2 + 3)
    assert up.ready["edge_pid"] == before["edge_pid"]


def restart_node(up: Up) -> None:
    before = up.ready
    told = up.iop("node", "restart", "--json")
    assert told.returncode == 0, told.stderr + up.words()
    assert json.loads(told.stdout)["pid"] == before["node_pids"][0] == up.ready["node_pids"][0]


def kill_edge(up: Up) -> None:
    before = up.ready
    os.kill(before["edge_pid"], signal.SIGKILL)
    eventually(lambda: up.ready["edge_pid"] != before["edge_pid"], "the edge is started again")
    assert up.ready["http"] == before["http"]


def kill_both(up: Up) -> None:
    before = up.ready
    for pid in (before["edge_pid"], *before["node_pids"]):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: up.ready["edge_pid"] != before["edge_pid"] and up.ready["node_pids"] != before["node_pids"],
               "both are started again")


def events_of(up: Up, run_id: str) -> list[dict]:
    events, after = [], "0.0"
    while True:
        page = page_of(up, run_id, after)
        events += page["events"]
        after = page["next"]
        if page["ended"] and not page["events"]:
            return events


def page_of(up: Up, run_id: str, after: str = "0.0") -> dict:
    return up.client.get(f"/api/v1/runs/{run_id}/events", after=after, limit=1000)


def output_of(events: list[dict], channel: str = "stdout") -> bytes:
    return b"".join(base64.b64decode(event["bytes_b64"]) if "bytes_b64" in event else event["text"].encode()
                    for event in events if event["type"] == "output" and event["channel"] == channel)


@pytest.mark.parametrize("fault", [kill_node, restart_node, kill_edge, kill_both])
def test_a_program_outlives_what_carries_it(up: Up, fault: Callable[[Up], None]) -> None:
    mark = f"line-of-{fault.__name__}"
    reader = up.start("run", "-a", "cli", "-t", "count", f"{LINES} 0.1 {mark}")
    first = [reader.stdout.readline() for _ in range(3)]
    [program] = [pid for pid in processes_with(mark) if pid != reader.pid and "import sys, time" in command_of(pid)]
    fault(up)
    rest, err = reader.communicate(timeout=120)
    expected = "".join(f"{mark} {number}\n" for number in range(LINES))
    assert (reader.returncode, "".join(first) + rest) == (0, expected), err + up.words()
    run_id = next(run["run_id"] for run in up.client.get("/api/v1/runs", limit=1)["runs"])
    events = events_of(up, run_id)
    assert output_of(events) == expected.encode()
    assert [event["id"] for event in events] == [f"1.{number}" for number in range(1, len(events) + 1)]
    assert [event["type"] for event in events if event["type"] in ENDINGS] == ["completed"]
    told = up.iop("verify", run_id, "--json")
    assert told.returncode == 0, told.stdout + told.stderr
    assert not is_running(program)
    eventually(lambda: processes_with(mark) == [], "its supervisor has gone")
    eventually(lambda: remains_of(up.ready["node_pids"][0]) == [], "the node has reaped its children")


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def remains_of(parent: int) -> list[int]:
    """Its children that have ended and that nobody has asked about."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, of = place.read_text().rsplit(")", 1)[1].split()[:2]
        except OSError:
            continue
        if state == "Z" and int(of) == parent:
            found.append(int(place.parent.name))
    return found


def test_five_starts_in_place_leave_no_descriptor_open(up: Up) -> None:
    pid = up.ready["node_pids"][0]
    counts = []
    for _ in range(5):
        restart_node(up)
        counts.append(len(os.listdir(f"/proc/{pid}/fd")))
    assert len(set(counts)) == 1 and up.ready["node_pids"][0] == pid


def test_a_configuration_that_is_refused_changes_nothing(up: Up) -> None:
    file = up.state / "node-1" / "node.yaml"
    text = file.read_text()
    file.write_text("colour: red\n" + text)
    try:
        by_signal, by_edge = up.iop("node", "restart"), up.iop("node", "restart", "node-1")
    finally:
        file.write_text(text)
    assert (by_signal.returncode, by_edge.returncode) == (2, 2)
    assert "colour is not known" in by_signal.stderr and "colour is not known" in by_edge.stderr
    assert up.iop("run", "-a", "cli", "-t", "count", "1 0 still").stdout == "still 0\n"


def test_a_node_is_started_again_by_way_of_its_edge(up: Up) -> None:
    told = up.iop("node", "restart", "node-1", "--json")
    assert told.returncode == 0 and json.loads(told.stdout)["node"] == "node-1", told.stderr
    assert up.iop("node", "restart", "node-9").returncode == 3


def test_systemd_hears_of_a_start_in_place_from_the_process_it_started(tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text("node: {id: n1}\nedge: {port: 1, plain: true}\n")
    (tmp_path / "token").write_text("token\n")
    (tmp_path / "token").chmod(0o600)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as wire:
        wire.bind(str(tmp_path / "notify"))
        wire.settimeout(60)
        node = subprocess.Popen([TWISTD, "--nodaemon", f"--pidfile={tmp_path / 'pid'}", "iop-node", "-c", "node.yaml"],
                                cwd=tmp_path, env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
                                stdout=(tmp_path / "log").open("w"), stderr=subprocess.STDOUT)
        try:
            heard = [told_by(wire, "READY=1")]
            node.send_signal(signal.SIGUSR2)
            heard += [told_by(wire, "RELOADING=1"), told_by(wire, "READY=1")]
            node.send_signal(signal.SIGUSR2)
            told_by(wire, "RELOADING=1")
            node.send_signal(signal.SIGTERM)         # in the middle of it: the new start hears of it
            heard += [told_by(wire, "STOPPING=1")]
            assert node.wait(60) == 0 and all(heard), (tmp_path / "log").read_text()
        finally:
            node.kill()
            node.wait()


def told_by(wire: socket.socket, word: str) -> bool:
    """Wait for the word; STOPPING=1 instead of another is none."""
    while True:
        told = wire.recv(4096).decode()
        if told.startswith((word, "STOPPING=1")):
            return told.startswith(word)


def begun(up: Up, mark: str, count: int = 1) -> list[str]:
    """Runs of the program under way, each with some output."""
    run_ids = [up.run_id("-a", "cli", "-t", "count", f"6000 0.02 {mark}-{number}") for number in range(count)]
    for run_id in run_ids:
        eventually(lambda run_id=run_id: len(page_of(up, run_id)["events"]) > 3, "the program has told something")
    return run_ids


def check_stopped(up: Up, run_ids: list[str]) -> None:
    """Each has one ending, which says why, and a history without a hole."""
    for run_id in run_ids:
        assert up.ended(run_id)["outcome"]["code"] == "node_restarted", up.run(run_id)
        events = events_of(up, run_id)
        assert [event["type"] for event in events if event["type"] in ENDINGS] == ["failed"]
        assert [event["id"] for event in events] == [f"1.{number}" for number in range(1, len(events) + 1)]


def test_a_stop_under_load_ends_in_order_and_a_second_term_changes_nothing(bring_up: Callable[..., Up]) -> None:
    up = bring_up("--cli", "count=" + COUNT)
    run_ids = begun(up, "mark-of-load", 4)
    began, ready = time.monotonic(), up.ready
    up.process.send_signal(signal.SIGTERM)
    for pid in (*ready["node_pids"], ready["edge_pid"]):
        os.kill(pid, signal.SIGTERM)
    assert up.stop() == 0, up.words()
    assert time.monotonic() - began < STOPPED_S
    assert left_of(up.state) == []
    check_stopped(bring_up(), run_ids)


def test_a_node_whose_edge_and_supervisor_are_killed_ends_its_runs_and_delivers_that_later(
        bring_up: Callable[..., Up]) -> None:
    up = bring_up("--cli", "count=" + COUNT)
    run_ids = begun(up, "mark-of-orphan")
    ready = up.ready
    up.process.kill()
    os.kill(ready["edge_pid"], signal.SIGKILL)
    eventually(lambda: not is_running(ready["node_pids"][0]), "the node has ended", STOPPED_S)
    assert left_of(up.state) == []
    check_stopped(bring_up(), run_ids)


def test_a_stop_while_a_killed_node_is_still_down_leaves_no_program(bring_up: Callable[..., Up]) -> None:
    up = bring_up("--cli", "count=" + COUNT)
    [run_id] = begun(up, "mark-of-pause")
    os.kill(up.ready["node_pids"][0], signal.SIGKILL)
    assert up.stop() == 0, up.words()
    assert left_of(up.state) == []
    again = bring_up()
    assert again.ended(run_id)["state"] in ("failed", "unknown")
    assert len([event for event in events_of(again, run_id) if event["type"] in ENDINGS]) == 1
