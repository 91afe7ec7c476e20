"""An orderly end under load, with real processes: an edge that is stopped, and a node that is drained."""

from __future__ import annotations

import json
import os
import select
import signal
import time

from tests.e2e.up import COUNT, eventually, is_running

STOP_S = 20.0                # of an edge, whatever it has to do


def test_a_stopped_edge_drains_in_time_with_exit_code_0_and_its_runs_go_on(bring_up):
    up = bring_up("--cli", "count=" + COUNT)
    edge_pid = up.ready["edge_pid"]
    ids = [up.run_id("-a", "cli", "-t", "count", f"300 0.02 load{number}") for number in range(8)]
    readers = [up.start("tail", run_id, "--json") for run_id in ids for _ in range(2)]
    eventually(lambda: all(select.select([reader.stdout], [], [], 0)[0] for reader in readers), "all have something to read")
    began = time.monotonic()
    os.kill(edge_pid, signal.SIGTERM)
    eventually(lambda: not is_running(edge_pid), "the edge has ended")
    assert time.monotonic() - began < STOP_S
    eventually(lambda: "edge ended (exit code 0)" in up.words(), "its exit code is told")
    eventually(lambda: up.ready["edge_pid"] != edge_pid and up.is_ready(), "it is back")
    assert {up.ended(run_id)["state"] for run_id in ids} == {"completed"}, up.words()
    for reader in readers:
        told, words = reader.communicate(timeout=60)
        seqs = [event["seq"] for event in map(json.loads, told.splitlines())]
        assert (reader.returncode, seqs) == (0, list(range(1, len(seqs) + 1))), words
    for run_id in ids:
        checked = up.iop("verify", run_id, "--json")
        found = json.loads(checked.stdout)
        assert (checked.returncode, found["whole"], found["checked"]) == (0, True, "digest"), found


def test_a_drained_node_under_load_hands_what_waits_to_the_other(bring_up):
    up = bring_up("--cli", "count=" + COUNT, "--nodes", "2")
    name = up.client.get("/api/v1/nodes")["nodes"][0]["node_id"]
    asked = [{"adapter": "cli", "target": "count", "input": {"prompt": f"100 0.05 load{number}"}} for number in range(20)]
    ids = [up.client.post("/api/v1/runs", body)["run_id"] for body in asked]
    assert up.client.get(f"/api/v1/nodes/{name}")["running"]
    drained = up.iop("drain", name, "--wait", "--timeout", "50")
    assert drained.returncode == 0 and "still there" in drained.stderr, drained.stderr
    ended_there = len(up.client.get("/api/v1/runs", node=name, limit=100)["runs"])
    assert {up.ended(run_id)["state"] for run_id in ids} == {"completed"}, up.words()
    assert len(up.client.get("/api/v1/runs", node=name, limit=100)["runs"]) == ended_there < len(ids)
    assert all(up.run(run_id)["attempt"] == 1 for run_id in ids)
    assert up.iop("drain", name, "--off").returncode == 0
