"""A history that cannot be written holds back what runs, to the program itself, and ends nothing."""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.test_postgresql import on_postgresql
from tests.e2e.up import Up, eventually

MIB = 1 << 20
TOTAL_MIB = 96               # more than a supervisor's journal (64 MiB) and all windows and pipes behind it take
# Writes MiB after MiB as fast as it is read, and says in a file how many are written: "FILE COUNT".
FLOOD = f"""{sys.executable} -c 'import sys
place, count = sys.argv[1].split()
for number in range(int(count)):
    sys.stdout.write(("x" * 1023 + chr(10)) * 1024)
    sys.stdout.flush()
    open(place, "w").write(str(number + 1))' {{prompt}}"""


@contextmanager
def sqlite_locked(up: Up) -> Iterator[None]:
    connection = sqlite3.connect(next(up.state.rglob("history.db")), isolation_level=None)
    connection.execute("PRAGMA busy_timeout = 30000")
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.execute("ROLLBACK")
    connection.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def house(request: pytest.FixtureRequest, bring_up: Callable[..., Up]) -> tuple[Up, Callable[[], object]]:
    """An `iop up`, and what makes its history impossible to write for a while."""
    if request.param == "sqlite":
        up = bring_up("--cli", "flood=" + FLOOD)
        return up, lambda: sqlite_locked(up)
    server, url = request.getfixturevalue("postgresql"), request.getfixturevalue("postgresql_url")
    if not server.ours:
        pytest.skip("the server is not ours to stop")

    @contextmanager
    def stopped() -> Iterator[None]:
        server.stop()
        yield
        server.start()
    return on_postgresql(bring_up, url, "flood=" + FLOOD), stopped


def test_a_history_that_is_away_pauses_programs_and_keeps_links_and_recovers_by_itself(house, tmp_path: Path) -> None:
    up, away = house
    place = tmp_path / "written"
    node_id = up.client.get("/api/v1/nodes")["nodes"][0]["node_id"]
    with away():
        began = time.monotonic()
        refused = up.iop("run", "-a", "cli", "-t", "flood", "--json", f"{place} 1")
        assert refused.returncode == 1 and json.loads(refused.stderr)["error"]["code"] == "history_unavailable"
        assert time.monotonic() - began < 30
    run_id = str(eventually(lambda: up.run_id("-a", "cli", "-t", "flood", f"{place} {TOTAL_MIB}"), "runs are taken again"))
    eventually(place.exists, "the program writes")
    with away():
        written = standstill(place)
        assert 1 <= written < TOTAL_MIB
        node = up.client.get(f"/api/v1/nodes/{node_id}")
        assert (node["state"], node["running"]) == ("up", 1)
        assert up.client.get(f"/api/v1/runs/{run_id}")["state"] == "running"
        assert up.client.get(f"/api/v1/nodes/{node_id}")["epoch"] == node["epoch"]
    run = up.ended(run_id)
    assert (run["state"], run["totals"]["bytes"], run["attempt"]) == ("completed", TOTAL_MIB * MIB, 1), up.words()
    assert up.client.get(f"/api/v1/nodes/{node_id}")["epoch"] == node["epoch"], "its link was cut"
    verified = up.iop("verify", run_id)
    assert verified.returncode == 0, verified.stdout


def standstill(place: Path) -> int:
    """How much the program has written, once it writes no more."""
    seen, since = -1, time.monotonic()

    def still() -> bool:
        nonlocal seen, since
        now = int(place.read_text() or 0)
        if now != seen:
            seen, since = now, time.monotonic()
        return time.monotonic() - since > 4
    eventually(still, "the program stands still")
    return seen
