"""`iop up` as a person uses it: what it makes, what it survives, and what it leaves."""

import json
import os
import signal
import socket
import stat
import subprocess
import time

from tests.e2e.up import COUNT, IOP, eventually, is_running, processes_with

HELLO = ("--cli", "hello=echo {prompt}")


def test_the_ready_file_tells_all_and_is_private(bring_up, tmp_path):
    up = bring_up(*HELLO, "--ready-file", str(tmp_path / "ready"))
    ready = json.loads((tmp_path / "ready").read_text())
    assert ready == up.ready
    assert set(ready) == {"http", "link", "console", "console_key", "api_key", "edge_pid", "node_pids", "state"}
    assert stat.S_IMODE((tmp_path / "ready").stat().st_mode) == 0o600
    assert is_running(ready["edge_pid"]) and all(is_running(pid) for pid in ready["node_pids"])
    assert ready["state"] == str(up.state) and stat.S_IMODE(up.state.stat().st_mode) == 0o700


def test_sigterm_ends_all_of_it_with_exit_code_0(bring_up):
    up = bring_up("--cli", "count=" + COUNT)
    ready = up.ready
    run_id = up.run_id("-a", "cli", "-t", "count", "600 0.1 mark-of-sigterm")
    eventually(lambda: processes_with("mark-of-sigterm"), "the program runs")
    assert up.run(run_id)["state"] in ("placed", "running")
    assert up.stop() == 0, up.words()
    assert [pid for pid in [ready["edge_pid"], *ready["node_pids"]] if is_running(pid)] == []
    assert processes_with("mark-of-sigterm") == [] and not up.ready_file.exists()
    again = bring_up()
    assert again.ended(run_id)["state"] in ("cancelled", "failed")


def test_a_folder_that_exists_is_continued(bring_up):
    up = bring_up(*HELLO)
    before, run_id = up.ready, up.run_id("-a", "cli", "-t", "hello", "hi")
    up.ended(run_id)
    assert up.stop() == 0
    again = bring_up()
    assert (again.ready["api_key"], again.ready["http"]) == (before["api_key"], before["http"])
    assert again.run(run_id)["state"] == "completed"
    assert again.iop("run", "-a", "cli", "-t", "hello", "hi").stdout == "hi\n"


def test_a_second_one_on_the_same_folder_is_refused_with_one_sentence(bring_up):
    up = bring_up(*HELLO)
    second = subprocess.run([IOP, "up", "--state", str(up.state)], capture_output=True, text=True, timeout=30)
    assert second.returncode == 2 and "is running on" in second.stderr and "Traceback" not in second.stderr


def test_a_port_that_is_taken_is_one_sentence(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
        told = subprocess.run([IOP, "up", "--state", str(tmp_path / "s"), "--http-port", port], capture_output=True,
                              text=True, timeout=30)
    assert told.returncode == 2 and f"Port {port}" in told.stderr and "Traceback" not in told.stderr


def test_a_run_that_its_node_drove_has_one_ending_after_a_kill(bring_up):
    up = bring_up()
    file = up.state / "edge" / "edge.yaml"
    file.write_text(file.read_text().replace("echo: true", "script: [{text: one}, {text: two, delay_s: 600}]"))
    up.process.send_signal(signal.SIGHUP)
    eventually(lambda: "was read again" in up.words(), "the edge has read it")
    before = up.ready
    reader = up.start("run", "-a", "mock", "-t", "echo", "hi")
    assert reader.stdout.read(3) == "one"
    os.kill(before["node_pids"][0], signal.SIGKILL)
    eventually(lambda: up.ready["node_pids"] != before["node_pids"], "the ready file names the new node")
    assert up.ready["edge_pid"] == before["edge_pid"] and up.ready["http"] == before["http"]
    out, err = reader.communicate(timeout=90)
    assert (reader.returncode, out.strip()) == (1, "") and "node_restarted" in err
    [run] = up.client.get("/api/v1/runs", limit=1)["runs"]
    assert (run["state"], run["outcome"]["code"]) == ("failed", "node_restarted")
    endings = [event for event in up.client.get(f"/api/v1/runs/{run['run_id']}/events", limit=1000)["events"]
               if event["type"] in ("completed", "failed", "cancelled", "unknown")]
    assert len(endings) == 1
    assert up.iop("run", "-a", "mock", "-t", "echo", "--timeout", "1", "again").stdout.startswith("one")


def test_when_iop_up_itself_is_killed_nothing_is_left(bring_up):
    up = bring_up(*HELLO)
    ready = up.ready
    up.process.kill()
    children = [ready["edge_pid"], *ready["node_pids"]]
    eventually(lambda: not any(map(is_running, children)), "its children have ended")
    again = bring_up()
    told = again.iop("run", "-a", "cli", "-t", "hello", "hi")
    assert told.stdout == "hi\n", told.stderr + again.words()


def test_a_node_whose_configuration_was_spoiled_leaves_no_program_behind(bring_up):
    up = bring_up("--cli", "count=" + COUNT)
    up.run_id("-a", "cli", "-t", "count", "600 0.1 mark-of-spoiled")
    eventually(lambda: processes_with("mark-of-spoiled"), "the program runs")
    file = up.state / "node-1" / "node.yaml"
    file.write_text(file.read_text() + "polcy: {}\n")
    [node] = up.ready["node_pids"]
    os.kill(node, signal.SIGKILL)
    assert up.process.wait(60) == 2
    assert "polcy is not known" in up.log.read_text() and "all of it was stopped" in up.log.read_text()
    assert processes_with("mark-of-spoiled") == []


def test_two_nodes_are_both_ready(bring_up):
    up = bring_up(*HELLO, "--nodes", "2")
    nodes = json.loads(up.iop("nodes", "--json").stdout)
    assert sorted((node["node_id"], node["state"]) for node in nodes) == [("node-1", "up"), ("node-2", "up")]
    assert len(up.ready["node_pids"]) == 2


def test_without_targets_a_mock_answers(bring_up):
    up = bring_up()
    assert up.iop("run", "-a", "mock", "-t", "echo", "hello").stdout.strip() == "hello"
    assert "mock" in up.log.read_text()


def test_a_new_target_is_offered_after_sighup(bring_up):
    up = bring_up(*HELLO)
    file = up.state / "edge" / "edge.yaml"
    file.write_text(file.read_text().replace("hello:", "later:").replace("- hello", "- later"))
    up.process.send_signal(signal.SIGHUP)
    eventually(lambda: up.iop("run", "-a", "cli", "-t", "later", "hi").stdout == "hi\n", "the new target answers")
    assert up.iop("run", "-a", "cli", "-t", "hello", "hi").returncode == 3


def test_a_bad_edit_leaves_the_edge_as_it_was(bring_up):
    up = bring_up(*HELLO)
    (up.state / "edge" / "edge.yaml").write_text("edge: {colour: red}\n")
    up.process.send_signal(signal.SIGHUP)
    eventually(lambda: "colour" in (up.state / "edge" / "log").read_text(), "the edge tells the fault")
    assert up.iop("run", "-a", "cli", "-t", "hello", "hi").stdout == "hi\n"


def test_ready_comes_soon(bring_up):
    began = time.monotonic()
    bring_up(*HELLO)
    assert time.monotonic() - began < 30
