"""The edge's commands: each asks the service, and streams read at their reader's pace."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from twisted.internet.defer import Deferred

from iop import events
from iop.commandline import UsageError
from iop.commands import Caller
from iop.edge.commands import edge_commands
from iop.errors import InvalidRequest, IOPError, NoSuchRun, NoSuchTarget
from iop.interfaces import IStream
from iop.keys import SCOPES
from iop.proto import node_pb2
from iop.testing.edge import FakeEdge, script

CALLER = Caller("console", "SHA256:x me")


class Reader:
    """Takes a stream, as a session does."""

    def __init__(self, stream) -> None:
        self.stream, self.items, self.ends = stream, [], []
        stream.start(self.items.extend, self.ends.append)

    @property
    def text(self) -> str:
        return "".join(item["text"] for item in self.items if item["type"] == "output")


@pytest.fixture
def edge() -> FakeEdge:
    return FakeEdge()


@pytest.fixture
def run(edge):
    table = edge_commands(edge)

    def run(line: str) -> object:
        results: list[object] = []
        table.run_line(line, CALLER).addBoth(results.append)
        if hasattr(results[0], "raiseException"):
            results[0].raiseException()
        return results[0]
    return run


def test_every_command_has_help_an_example_of_use_and_a_scope(edge):
    for command in edge_commands(edge).commands.values():
        assert command.summary.endswith(".") and len(command.summary) < 90
        assert command.scope in SCOPES or command.name == "help"


def test_what_changes_something_says_so_and_carries_its_source(edge, run):
    table = edge_commands(edge)
    assert {name for name, command in table.commands.items() if command.changes} == {
        "label", "drain", "undrain", "run", "cancel", "close-session", "cmd"}
    run("drain n1")
    run("label n1 a=b c= -room")
    assert [(asked, source.face, source.principal) for asked, source in edge.asked] == [
        ("drain n1 True", "console", "SHA256:x me"), ("label n1", "console", "SHA256:x me")]
    assert edge.nodes_by_id["n1"].labels == {"a": "b"}


@pytest.mark.parametrize("line", [
    "label n1", "label n1 word", "label n1 =x", "label n1 -", "run tiny", "cmd n1", "runs --limit 0", "events --limit 1001",
    "run tiny x --timeout -1"])
def test_what_makes_no_sense_is_a_usage_error(run, line):
    with pytest.raises(UsageError):
        run(line)


def test_a_run_streams_until_it_has_ended(edge, run):
    stream = run("run tiny say it")
    assert IStream.providedBy(stream)
    reader = Reader(stream)
    told = edge.last
    told.start()
    told.emit(events.output("a"), events.output("b"))
    assert reader.text == "ab" and reader.ends == []
    told.end("completed")
    assert reader.ends == [None]
    assert told.cursors[0].closed


def test_a_run_can_be_pinned_to_a_node_and_have_limits(edge, run):
    with pytest.raises(NoSuchTarget):
        run("run n9/openai/tiny x")
    run("run openai/tiny hello --timeout 5 --session s1 --priority 3 --detach")
    request = edge.last.request
    assert (request.prompt, request.limits.run_s, request.session_id, request.priority) == ("hello", 5, "s1", 3)


def test_a_run_that_fails_ends_its_stream_with_its_code(edge, run):
    edge.scripts["tiny"] = script(events.output("x"), error=events.UpstreamError("it broke"))
    reader = Reader(run("run tiny x"))
    assert [(error.code, error.message) for error in reader.ends] == [("upstream_error", "it broke")]


def test_stopping_a_run_cancels_it_and_stopping_a_tail_does_not(edge, run):
    reader = Reader(run("run tiny x"))
    watcher = Reader(run(f"tail {edge.last.record.run_id}"))
    watcher.stream.stop()
    assert edge.last.cancels == [] and watcher.ends == [None]
    reader.stream.stop()
    assert len(edge.last.cancels) == 1
    reader.stream.stop()
    assert len(edge.last.cancels) == 1 and len(reader.ends) == 1


def test_a_tail_of_a_failed_run_is_no_failure(edge, run):
    edge.scripts["tiny"] = script(events.output("x"), error=events.UpstreamError("it broke"))
    run("run tiny x --detach")
    reader = Reader(run(f"tail {edge.last.record.run_id}"))
    assert reader.ends == [None] and reader.items[-1]["type"] == "failed"


def test_a_tail_begins_behind_an_event_and_ends_also_beyond_the_last(edge, run):
    edge.scripts["tiny"] = script(events.output("a"), events.output("b"))
    run("run tiny x --detach")
    run_id = edge.last.record.run_id
    reader = Reader(run(f"tail {run_id} --after 1.2"))
    assert [item["id"] for item in reader.items] == ["1.3", "1.4"]
    assert Reader(run(f"tail {run_id} --after 1.99")).ends == [None]
    with pytest.raises(IOPError):
        run(f"tail {run_id} --after nonsense")
    with pytest.raises(NoSuchRun):
        run("tail 0123")


def test_a_paused_reader_is_given_nothing_and_misses_nothing(edge, run):
    reader = Reader(run("run tiny x"))
    edge.last.start()
    reader.stream.pause()
    for number in range(100):
        edge.last.emit(events.output(f"{number} "))
    assert reader.text == ""
    reader.stream.resume()
    assert reader.text == "".join(f"{number} " for number in range(100))


def test_a_reader_that_pauses_while_it_is_given_something_is_heeded(edge, run):
    run("run tiny x --detach")
    edge.last.start()
    for _ in range(100):
        edge.last.emit(events.output("x" * 4096))
    stream = run(f"tail {edge.last.record.run_id}")
    taken = []
    stream.start(lambda items: (taken.append(len(items)), stream.pause()), lambda error: None)
    assert len(taken) == 1
    stream.resume()
    assert len(taken) == 2


def test_a_read_that_comes_after_the_stop_is_dropped(edge, run):
    run("run tiny x --detach")
    edge.last.start()
    late = edge.last.lagging = Deferred()
    reader = Reader(run(f"tail {edge.last.record.run_id}"))
    reader.stream.stop()
    late.callback(None)
    assert reader.items == [] and reader.ends == [None]


def test_notices_stand_on_lines_of_their_own(edge, run):
    edge.scripts["tiny"] = script(events.output("no newline"))
    stream = run("run tiny x")
    shown = []
    stream.start(lambda items: shown.extend(map(stream.text, items)), lambda error: None)
    assert shown == [("err", "[started openai/tiny]\n"), ("out", "no newline"), ("err", "\n[completed]\n")]


def test_events_end_or_follow(edge, run):
    for number in range(3):
        edge.happened("node_up", node_id=f"n{number}")
    reader = Reader(run("events --limit 2"))
    assert [item["id"] for item in reader.items] == [2, 3] and reader.ends == [None]
    reader = Reader(run("events --after 1 --follow"))
    edge.happened("node_down", node_id="n1", detail=b'{"why": "x"}')
    assert [item["id"] for item in reader.items] == [2, 3, 4] and reader.ends == []
    assert "node_down" in reader.stream.text(reader.items[-1])[1]
    reader.stream.stop()
    assert reader.ends == [None] and not edge.watchers


def test_following_an_edge_without_events_begins_with_the_first(edge, run):
    reader = Reader(run("events --follow"))
    edge.happened("node_up", node_id="n1")
    assert [item["id"] for item in reader.items] == [1]


def test_a_node_answers_a_command_or_tells_why_not(edge, run):
    edge.answers["status"] = node_pb2.NodeCommandResponse(ok=True, result=b'{"a": 1}')
    edge.answers["say 'two words'"] = node_pb2.NodeCommandResponse(ok=True, result=b"2")
    assert run("cmd n1 status") == {"a": 1}
    assert run("cmd n1 say 'two words'") == 2
    with pytest.raises(IOPError) as caught:
        run("cmd n1 nonsense")
    assert caught.value.code == "invalid_request"


def test_a_target_that_nobody_offers_is_told_in_the_words_of_the_console(run):
    with pytest.raises(NoSuchTarget, match="There is no target 'cli/helo' here") as told:
        run("run cli/helo hi")
    assert "`nodes` lists them" in told.value.hint and "GET" not in told.value.hint


def test_help_fits_a_terminal_of_80_columns(edge, run):
    table = edge_commands(edge)
    for line in ("help", *(f"help {name}" for name in table.commands)):
        assert max(map(len, table.commands["help"].text(run(line)).splitlines())) < 80


def test_a_run_that_has_to_wait_says_so(edge, run, monkeypatch):
    submit = edge.submit
    monkeypatch.setattr(edge, "submit", lambda *words: submit(*words).addCallback(
        lambda record: msgspec.structs.replace(record, state="queued")))
    assert "ready and free" in run("run tiny hi").note and run("tail " + edge.last.record.run_id).note == ""


def test_the_page_of_the_console_has_every_command(edge):
    page = (Path(__file__).parents[2] / "docs" / "console.md").read_text()
    documented = re.findall(r"^\| `([a-z-]+)", page, re.MULTILINE)
    assert sorted(documented) == sorted([*edge_commands(edge).commands, "exit"])


def test_a_run_is_verified(edge, run):
    edge.scripts["tiny"] = script(events.output("hi"))
    run_id = run("run tiny x --detach")["run_id"]
    found = run(f"verify {run_id}")
    assert (found["whole"], found["events"], found["bytes"]) == (True, 2, 2)
    command = edge_commands(edge).commands["verify"]
    assert command.text(found).startswith(f"{run_id} is whole: 2 events, 2 bytes of output, digest ")
    assert command.exit_code(found) == 0 and command.exit_code(found | {"whole": False, "faults": ["a hole"]}) == 1


def test_usage_is_told_by_what_was_asked_for(edge, run):
    run("run tiny x --detach")
    row, = run("usage --by key,node")["usage"]
    assert (row["key"], row["node"], row["model"], row["runs"]) == ("op", "n1", "", 1)
    with pytest.raises(InvalidRequest):
        run("usage --by moon")
