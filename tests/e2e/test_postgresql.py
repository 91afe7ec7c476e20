"""The edge with its history in a real PostgreSQL: what SQLite gives, it gives too."""

import os
import signal

from tests.e2e.up import COUNT, eventually, processes_with

LINES = "".join(f"mark-of-postgresql {number}\n" for number in range(60))


def on_postgresql(bring_up, url: str, cli: str = "count=" + COUNT):
    """An `iop up` whose edge.yaml names the database, as a person would write it there."""
    up = bring_up("--cli", cli)
    assert up.stop() == 0, up.words()
    file = up.state / "edge" / "edge.yaml"
    file.write_text(file.read_text() + f'history: "{url}"\n')
    return bring_up()


def output(up, run_id: str) -> str:
    events = up.client.get(f"/api/v1/runs/{run_id}/events", limit=1000)["events"]
    return "".join(event["text"] for event in events if event["type"] == "output")


def test_a_run_goes_on_through_kills_of_the_edge_and_of_the_database(bring_up, postgresql, postgresql_url):
    up = on_postgresql(bring_up, postgresql_url)
    before = up.ready
    run_id = up.run_id("-a", "cli", "-t", "count", "60 0.1 mark-of-postgresql")
    eventually(lambda: processes_with("mark-of-postgresql"), "the program runs")
    os.kill(before["edge_pid"], signal.SIGKILL)
    eventually(lambda: up.ready["edge_pid"] != before["edge_pid"], "the ready file names the new edge")
    postgresql.kill()
    postgresql.start()
    run = up.ended(run_id)
    assert (run["state"], run["outcome"]["exit_code"]) == ("completed", 0), run
    assert output(up, run_id) == LINES
    stored = postgresql.execute("SELECT count(*), max(last_seq) FROM batches", postgresql_url)
    assert stored[0][0] >= 1 and stored[0][1] == run["totals"]["events"] + 1


def test_a_run_goes_on_through_a_kill_of_its_node(bring_up, postgresql, postgresql_url):
    up = on_postgresql(bring_up, postgresql_url)
    before = up.ready
    run_id = up.run_id("-a", "cli", "-t", "count", "60 0.1 mark-of-postgresql")
    eventually(lambda: processes_with("mark-of-postgresql"), "the program runs")
    os.kill(before["node_pids"][0], signal.SIGKILL)
    run = up.ended(run_id)
    assert (run["state"], run["outcome"]["exit_code"]) == ("completed", 0), run
    assert output(up, run_id) == LINES
    assert up.iop("verify", run_id).returncode == 0
    assert processes_with("mark-of-postgresql") == []
