"""`iop run` and its friends against a real edge and node."""

import json
import signal
import subprocess

import pytest

from tests.e2e.up import IOP, eventually, processes_with


def test_a_run_streams_its_output_and_ends_with_0(shared_up):
    told = shared_up.iop("run", "-a", "cli", "-t", "hello", "hi there")
    assert (told.returncode, told.stdout, told.stderr) == (0, "hi there\n", "")


def test_output_arrives_while_the_program_runs(shared_up):
    run = shared_up.start("run", "-a", "cli", "-t", "count", "100 0.1 early")
    assert run.stdout.readline() == "early 0\n"
    assert run.poll() is None
    run.send_signal(signal.SIGINT)
    assert run.wait(30) == 130


def test_ctrl_c_cancels_and_leaves_no_process(shared_up):
    run = shared_up.start("run", "-a", "cli", "-t", "count", "600 0.1 mark-of-ctrl-c")
    run.stdout.readline()
    assert processes_with("mark-of-ctrl-c\0") or processes_with("mark-of-ctrl-c")
    run.send_signal(signal.SIGINT)
    assert run.wait(30) == 130
    assert [pid for pid in processes_with("mark-of-ctrl-c") if pid != run.pid] == []


def test_a_failing_program_is_exit_code_1_and_one_sentence(shared_up):
    told = shared_up.iop("run", "-a", "cli", "-t", "fails", "x")
    assert told.returncode == 1 and told.stdout == ""
    assert told.stderr.startswith("no\n") and "iop: failed:" in told.stderr


def test_no_such_target_is_exit_code_3(shared_up):
    told = shared_up.iop("run", "-a", "cli", "-t", "nothing", "x")
    assert told.returncode == 3 and "nothing" in told.stderr + "nothing" and "Traceback" not in told.stderr


def test_a_wrong_key_is_exit_code_4(shared_up):
    told = subprocess.run([IOP, "nodes"], capture_output=True, text=True,
                          env={"IOP_URL": shared_up.ready["http"], "IOP_API_KEY": "iopo_wrong", "PATH": "/usr/bin"})
    assert told.returncode == 4 and "Traceback" not in told.stderr


def test_standard_input_is_the_prompt(shared_up):
    told = shared_up.iop("run", "-a", "cli", "-t", "cat", "-", input="from a pipe\n")
    assert told.stdout == "from a pipe\n"


def test_bytes_that_are_not_text_pass_exactly(shared_up):
    prompt = "".join(map(chr, range(1, 0x250)))
    told = shared_up.iop("run", "-a", "cli", "-t", "cat", "-", input=prompt.encode(), text=False)
    assert told.stdout == prompt.encode()


def test_json_is_one_event_a_line(shared_up):
    told = shared_up.iop("run", "--json", "-a", "cli", "-t", "hello", "hi")
    events = [json.loads(line) for line in told.stdout.splitlines()]
    assert [event["id"] for event in events] == [f"1.{number}" for number in range(1, len(events) + 1)]
    assert events[0]["type"] == "started" and events[-1]["type"] == "completed"
    assert "".join(event["text"] for event in events if event["type"] == "output") == "hi\n"


def test_two_readers_tail_one_run_and_see_every_line_once(shared_up):
    run_id = shared_up.run_id("-a", "cli", "-t", "count", "30 0.05 both")
    tails = [shared_up.start("tail", run_id) for _ in range(2)]
    whole = "".join(f"both {number}\n" for number in range(30))
    for tail in tails:
        assert tail.communicate(timeout=60)[0] == whole and tail.returncode == 0
    assert shared_up.iop("tail", run_id).stdout == whole


def test_a_tail_goes_on_behind_the_event_it_is_given(shared_up):
    run_id = shared_up.run_id("-a", "cli", "-t", "count", "3 0.1 after")
    shared_up.ended(run_id)
    events = shared_up.client.get(f"/api/v1/runs/{run_id}/events", limit=1000)["events"]
    second = [event["id"] for event in events if event["type"] == "output"][0]
    rest = "".join(event["text"] for event in events if event["type"] == "output" and event["id"] > second)
    assert shared_up.iop("tail", run_id, "--after", second).stdout == rest
    assert shared_up.iop("tail", run_id, "--after", events[-1]["id"]).returncode == 0


def test_a_cancelled_run_is_130_for_its_readers(shared_up):
    run_id = shared_up.run_id("-a", "cli", "-t", "count", "600 0.1 mark-of-cancel")
    tail = shared_up.start("tail", run_id)
    tail.stdout.readline()
    assert shared_up.iop("cancel", run_id).returncode == 0
    tail.communicate(timeout=60)
    assert tail.returncode == 130
    assert shared_up.ended(run_id)["state"] == "cancelled"
    assert shared_up.iop("cancel", run_id).returncode == 0
    assert processes_with("mark-of-cancel") == []


def test_a_timeout_ends_the_run(shared_up):
    told = shared_up.iop("run", "--timeout", "0.5", "-a", "cli", "-t", "count", "600 0.1 slow")
    assert told.returncode == 1 and "[run_timeout]" in told.stderr


def test_the_lists_show_what_was_done(shared_up):
    run_id = shared_up.run_id("-a", "cli", "-t", "hello", "listed")
    shared_up.ended(run_id)
    assert run_id in shared_up.iop("runs").stdout
    latest = shared_up.iop("runs", "--json", "--limit", "1").stdout.splitlines()
    assert [json.loads(line)["run_id"] for line in latest] == [run_id]
    assert "node-1" in shared_up.iop("nodes").stdout
    shown = shared_up.iop("show", run_id)
    assert "completed" in shown.stdout and shown.returncode == 0
    assert shared_up.iop("show", "0" * 32).returncode == 3
    assert "node-1" in shared_up.iop("events").stdout
    assert shared_up.iop("sessions").returncode == 0


def test_events_are_followed(shared_up):
    follow = shared_up.start("events", "--follow", "--json")
    first = json.loads(follow.stdout.readline())
    assert "id" in first
    follow.send_signal(signal.SIGINT)
    assert follow.wait(30) == 130


def test_a_session_is_continued_until_it_is_closed(shared_up):
    hello = ("run", "--session", "s-1", "-a", "cli", "-t", "hello", "hi")
    assert [shared_up.iop(*hello).returncode for _ in range(2)] == [0, 0]
    listed = json.loads(shared_up.iop("sessions", "--json").stdout)
    assert [(one["session_id"], one["runs"], one["node_id"]) for one in listed] == [("s-1", 2, "node-1")]
    assert shared_up.iop("sessions", "--close", "s-1").returncode == 0
    assert shared_up.iop(*hello).returncode != 0
    assert shared_up.iop("sessions", "--close", "nothing").returncode == 3


@pytest.mark.parametrize("prompt", ["$(touch /x); `id` && rm", "a\nb", "ünïcödé ☃"])
def test_a_prompt_never_meets_a_shell(shared_up, prompt):
    assert shared_up.iop("run", "-a", "cli", "-t", "hello", prompt).stdout == prompt + "\n"


def test_a_key_made_while_the_edge_runs_counts_at_once_and_revoked_too(shared_up):
    made = json.loads(shared_up.iop("keys", "new", "api", "ci", "--scope", "nodes:read", "--json").stdout)
    environment = {"IOP_URL": shared_up.ready["http"], "IOP_API_KEY": made["key"], "PATH": "/usr/bin"}

    def nodes() -> int:
        return subprocess.run([IOP, "nodes"], capture_output=True, env=environment).returncode

    eventually(lambda: nodes() == 0, "the new key is known")
    assert subprocess.run([IOP, "run", "-a", "cli", "-t", "hello", "x"], capture_output=True, env=environment).returncode == 4
    assert shared_up.iop("keys", "revoke", made["keyid"]).returncode == 0
    eventually(lambda: nodes() == 4, "the revoked key is refused")
