"""Several keys at one edge of real processes: turns, limits, and what each has used."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from iop.cli.client import Client
from iop.errors import IOPError
from tests.e2e.up import Up, eventually

SLOW = """
- id: node-1
  adapters:
    mock:
      targets:
        slow: {concurrency: 2, script: [{text: "x", delay_s: 0.5}]}
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One whose node offers `slow`, two runs at a time."""
    up = Up(tmp_path_factory.mktemp("up") / "state").wait_ready()
    file = up.state / "edge" / "edge.yaml"
    head, _, _ = file.read_text().partition("nodes:")
    file.write_text(f"{head}nodes:{SLOW}")
    os.kill(up.ready["edge_pid"], signal.SIGHUP)
    eventually(lambda: "slow" in up.iop("nodes").stdout, "the node offers it")
    yield up
    assert up.stop() == 0, up.words()


def key_of(up: Up, owner: str, *limits: str) -> str:
    told = up.iop("keys", "new", "api", owner, *limits, "--json", "--state", str(up.state))
    made = json.loads(told.stdout)
    assert made["in_force"], told.stderr
    eventually(lambda: works(up, made["key"]), "the edge knows the key")
    return made["key"]


def works(up: Up, key: str) -> bool:
    try:
        return bool(Client(up.ready["http"], key).get("/api/v1/runs", limit=1))
    except IOPError:
        return False


def submit(client: Client, **fields: Any) -> str:
    return client.post("/api/v1/runs", {"adapter": "mock", "target": "slow", "input": {"prompt": "x"}} | fields)["run_id"]


def test_a_hundred_requests_of_one_key_delay_the_first_of_another_by_two_slots_at_most(up: Up) -> None:
    greedy, modest = (Client(up.ready["http"], key_of(up, owner)) for owner in ("greedy", "modest"))
    many = [submit(greedy) for _ in range(100)]
    one = submit(modest)
    assert up.ended(one)["state"] == "completed"
    runs = {run["run_id"]: run for run in greedy.get("/api/v1/runs", limit=1000)["runs"]}
    mine = modest.get(f"/api/v1/runs/{one}")
    placed = [runs[run_id]["placed_at"] or "9" for run_id in many]       # later than any year, where it still waits
    between = [at for at in placed if mine["created_at"] < at < mine["placed_at"]]
    assert len(between) <= 2, f"{len(between)} runs of the other went first"
    assert sum(at > mine["created_at"] for at in placed) > 10, "the queue was never long"
    for run_id in many:
        greedy.post(f"/api/v1/runs/{run_id}/cancel")
    eventually(lambda: not running(up), "all slots are free")
    rows = [json.loads(line) for line in up.iop("usage", "--by", "key,model,node", "--json").stdout.splitlines()]
    assert {(row["key"], row["model"]): row["runs"] for row in rows if row["node"] == "node-1"}["modest", "mock/slow"] == 1
    assert sum(row["runs"] for row in rows if row["key"] == "greedy") == 100


def running(up: Up) -> int:
    return sum(node["running"] for node in up.client.get("/api/v1/nodes")["nodes"])


def test_a_key_that_asks_too_often_is_told_when_to_come_again(up: Up) -> None:
    key = key_of(up, "hasty", "--requests-per-minute", "2", "--model", "slow")
    request = urllib.request.Request(
        up.ready["http"] + "/api/v1/runs", headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
        data=json.dumps({"adapter": "mock", "target": "slow", "input": {"prompt": "x"}}).encode())
    for _ in range(2):
        assert urllib.request.urlopen(request).status == 202
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    assert refused.value.status == 429 and 1 <= int(refused.value.headers["Retry-After"]) <= 31
    assert json.load(refused.value)["error"]["code"] == "rate_limit_exceeded"
