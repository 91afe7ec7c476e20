"""One-shots with a real ssh client: JSON, tables, exit codes, streams."""

from __future__ import annotations

import json

import pytest
import pytest_twisted
from twisted.internet import reactor

from iop import events
from iop.errors import PolicyDenied
from iop.testing.edge import script

pytestmark = pytest.mark.e2e
ensure = pytest_twisted.ensureDeferred


@ensure
async def test_nodes_as_json_is_one_line_and_exits_0(console):
    code, out, err = await console.ssh("nodes", "--json")
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    assert json.loads(out)[0]["node_id"] == "n1"


@ensure
async def test_nodes_for_people_is_a_table_without_carriage_returns(console):
    code, out, err = await console.ssh("/nodes")
    assert code == 0
    assert out.splitlines()[0].split() == ["NODE", "STATE", "RUNNING", "LOAD", "TARGETS", "LABELS", "VERSION"]
    assert "\r" not in out


@ensure
@pytest.mark.parametrize(("line", "code", "said"), [
    ("nonsense", 2, "There is no command 'nonsense'"),
    ("runs --limit x", 2, "--limit is a whole number"),
    ("nodes 'open", 2, "A quote in this line is not closed"),
    ("show 0123", 3, "There is no run with this id"),
    ("node nowhere", 3, "There is no node 'nowhere'"),
    ("run nothing hello", 3, "There is no target 'nothing' here"),
])
async def test_errors_go_to_stderr_with_their_exit_code(console, line, code, said):
    got, out, err = await console.ssh(line)
    assert (got, out) == (code, "")
    assert said in err


@ensure
async def test_an_error_is_json_when_json_was_asked_for(console):
    code, out, err = await console.ssh("show", "0123", "--json")
    assert (code, out) == (3, "")
    assert json.loads(err)["error"]["code"] == "no_such_run"


@ensure
async def test_a_run_streams_its_output_to_stdout_and_exits_0(console):
    console.edge.scripts["tiny"] = script(events.output("hel"), events.output("lo\n"),
                                          events.output("oops\n", events.CHANNEL_STDERR))
    code, out, err = await console.ssh("run", "tiny", "say", "it")
    assert (code, out) == (0, "hello\n")
    assert "oops\n" in err and "[completed]" in err
    assert console.edge.last.request.prompt == "say it"
    assert console.edge.last.record.face == "console"
    assert console.edge.last.record.principal.startswith("SHA256:")
    assert console.edge.last.record.principal.endswith(" me")


@ensure
async def test_a_run_that_fails_exits_1_and_a_refused_one_4(console):
    console.edge.scripts["tiny"] = script(error=events.UpstreamError("the backend is down"))
    code, _, err = await console.ssh("run", "tiny", "x")
    assert code == 1 and "the backend is down" in err
    console.edge.refusal = PolicyDenied()
    code, _, err = await console.ssh("run", "tiny", "x")
    assert code == 4 and "policy" in err


@ensure
async def test_verify_exits_5_until_the_run_has_ended(console):
    await console.ssh("run", "tiny", "x", "--detach")
    run = console.edge.last
    run.start()
    code, out, err = await console.ssh("verify", run.record.run_id)
    assert (code, err) == (5, "") and out.startswith(f"{run.record.run_id} has not yet ended: ")
    run.end("completed")
    code, out, err = await console.ssh("verify", run.record.run_id, "--json")
    assert (code, err, json.loads(out)["whole"]) == (0, "", True)


@ensure
async def test_a_tail_as_json_is_one_event_a_line(console):
    console.edge.scripts["tiny"] = script(events.output("a\x1b[2J\x9b\n"))
    await console.ssh("run", "tiny", "x", "--detach")
    code, out, _ = await console.ssh("tail", console.edge.last.record.run_id, "--json")
    assert code == 0
    told = [json.loads(line) for line in out.splitlines()]
    assert [event["type"] for event in told] == ["started", "output", "completed"]
    assert told[1]["text"] == "a\x1b[2J\x9b\n"
    assert not set(out) & {"\x1b", "\x9b"}


@ensure
async def test_a_client_that_goes_away_cancels_its_run(console, until):
    program = console.start(console.command("run", "tiny", "x"))
    await until(lambda: console.edge.runs_by_id, "the run")
    program.kill()
    await until(lambda: console.edge.last.cancels, "the cancel")


@ensure
async def test_a_client_that_leaves_a_tail_cancels_nothing(console, until):
    await console.ssh("run", "tiny", "x", "--detach")
    run = console.edge.last
    program = console.start(console.command("tail", run.record.run_id))
    await until(lambda: run.cursors and run.cursors[-1].callback, "the cursor")
    program.kill()
    await until(lambda: run.cursors[-1].closed, "the cursor to close")
    assert run.cancels == []


@ensure
async def test_a_reader_that_stops_reading_stops_the_stream_and_loses_nothing(console, until):
    await console.ssh("run", "tiny", "x", "--detach")
    run = console.edge.last
    run.start()
    lines = [f"{number:07d} " + "x" * 1015 + "\n" for number in range(24 * 1024)]      # 24 MiB
    for at in range(0, len(lines), 64):
        run.emit(events.output("".join(lines[at:at + 64])))
    run.end("completed")
    program = console.start(console.command("tail", run.record.run_id))
    program.transport.pipes[1].pauseProducing()
    channel = await until(lambda: next((c for c in console.server.sessions if c.full), None), "the window to be full")
    stopped_at = run.cursors[-1].after
    assert stopped_at < run.last_id
    assert len(channel.buf) < 1024 * 1024
    program.transport.pipes[1].resumeProducing()
    assert await program.ended.addTimeout(240, reactor) == 0    # 24 MiB through two ciphers, on a machine that may be busy
    assert program.out.decode() == "".join(lines)


@ensure
async def test_hints_name_what_can_be_typed_here(console):
    code, _, err = await console.ssh("show", "0199")
    assert code == 3 and "`runs`" in err and "iop" not in err
