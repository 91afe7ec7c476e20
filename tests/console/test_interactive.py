"""The interactive console, driven by a real ssh in a real terminal (tmux): keys in, screen out."""

from __future__ import annotations

import os
import shlex

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred, fail

from iop import events
from iop.errors import HistoryUnavailable
from iop.proto import node_pb2
from iop.records import SessionRecord
from iop.testing.edge import script

pytestmark = pytest.mark.e2e
ensure = pytest_twisted.ensureDeferred


class Terminal:
    """A tmux of its own, with one window in which ssh runs."""

    def __init__(self, console, until) -> None:
        self._console, self._until = console, until
        self._socket = str(console.folder / "tmux")

    async def _tmux(self, *arguments: str) -> str:
        program = self._console.start(["tmux", "-S", self._socket, "-f", "/dev/null", *arguments])
        code = await program.ended
        assert code == 0, (arguments, program.err)
        return program.out.decode()

    async def begin(self, width: int = 100, height: int = 30, **rest: object) -> None:
        command = shlex.join(self._console.command(**rest)) + "; echo ENDED $?; sleep 60"
        await self._tmux("new-session", "-d", "-x", str(width), "-y", str(height), command)
        await self._tmux("set-option", "-g", "status", "off")

    async def type(self, text: str, *keys: str) -> None:
        if text:
            await self._tmux("send-keys", "-l", text)
        for key in keys:
            await self._tmux("send-keys", key)

    async def screen(self) -> str:
        return await self._tmux("capture-pane", "-p", "-J")

    async def shows(self, text: str, *, times: int = 1) -> str:
        """Wait until the screen shows it; the screen."""
        seen = ""

        async def look() -> str:
            nonlocal seen
            seen = await self.screen()
            return seen if seen.count(text) >= times else ""

        try:
            return await self._until(lambda: Deferred.fromCoroutine(look()), repr(text))
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen:\n{seen}") from None

    async def line(self, text: str) -> None:
        await self.type(text, "Enter")

    async def resize(self, width: int, height: int) -> None:
        await self._tmux("resize-window", "-x", str(width), "-y", str(height))

    async def prompted(self) -> None:
        """Wait until the last line of the screen is an empty prompt."""
        seen = ""

        async def look() -> bool:
            nonlocal seen
            seen = await self.screen()
            return seen.rstrip().endswith("edge-1>")

        try:
            await self._until(lambda: Deferred.fromCoroutine(look()), "the prompt")
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen:\n{seen}") from None

    async def end(self) -> None:
        program = self._console.start(["tmux", "-S", self._socket, "kill-server"])
        await program.ended


@pytest.fixture
def terminal(console, until, need_tool):
    need_tool("tmux")
    made = Terminal(console, until)
    yield made
    pytest_twisted.blockon(Deferred.fromCoroutine(made.end()))


@ensure
async def test_every_command_answers_in_the_console(console, terminal):
    edge = console.edge
    edge.scripts["tiny"] = script(events.output("it says so\n"))
    edge.answers["status"] = node_pb2.NodeCommandResponse(ok=True, result=b'{"uptime_s":77}')
    edge.sessions_by_id["s1"] = SessionRecord(session_id="s1", node_id="n1", adapter="cli", target="echo", created_us=1,
                                              used_us=1)
    edge.happened("node_up", node_id="n1")
    await terminal.begin(120, 50)
    await terminal.prompted()
    for line, shown in [
        ("/nodes", "openai/tiny"), ("/node n1", "aliases:"), ("/label n1 gpu=a100 -room", "gpu=a100"),
        ("/drain n1", "up, draining"), ("/undrain n1", "up  "), ("/run tiny please", "it says so"),
        ("/runs", "completed  openai/tiny"), ("/events", "node_up"), ("/sessions", "s1"),
        ("/close-session s1", "session_id: s1"), ("/cmd n1 status", "uptime_s: 77"),
        ("/health", "nodes_up:"), ("/help", "Give a node no new runs."), ("/help run", "--detach only the run's id"),
        ("/nonsense", "There is no command 'nonsense'"), ("/python", "/python is off"),
    ]:
        await terminal.type("", "C-l")
        await terminal.line(line)
        await terminal.shows(shown)
        await terminal.prompted()
    run_id = edge.last.record.run_id
    for line, shown in [(f"show {run_id}", "principal:"), (f"tail {run_id}", "it says so"), (f"cancel {run_id}", "completed"),
                        ("nodes --json", '[{"node_id":"n1"'), ("run tiny x --detach", "run_id:")]:
        await terminal.type("", "C-l")
        await terminal.line(line)
        await terminal.shows(shown)
        await terminal.prompted()
    assert {line.split()[0] for line, source in edge.asked if source.face == "console"} == {
        "label", "drain", "command", "close_session"}
    await terminal.type("", "C-d")
    await terminal.shows("ENDED 0")


@ensure
async def test_the_line_is_edited_and_earlier_lines_come_back(console, terminal):
    await terminal.begin()
    await terminal.prompted()
    await terminal.type("odesX", "BSpace", "Home")
    await terminal.type("n", "End", "Enter")
    await terminal.shows("NODE  STATE")
    await terminal.type("health junk", "C-w", "Enter")
    await terminal.shows("history_backlog")
    await terminal.type("", "C-l")
    await terminal.type("draft", "Up", "Up")
    await terminal.shows("edge-1> nodes")
    await terminal.type("", "Down", "Down")
    await terminal.shows("edge-1> draft")
    await terminal.type("", "C-a", "C-k")
    await terminal.prompted()
    await terminal.type("one two", "Left", "Left", "Left", "C-u")
    await terminal.shows("edge-1> two")
    await terminal.type("", "C-e")
    await terminal.type("é日x", "Left", "Left")
    await terminal.type("-")
    await terminal.shows("edge-1> twoé-日x")
    await terminal.type("", "C-c")
    await terminal.shows("twoé-日x^C")
    await terminal.prompted()


@ensure
async def test_tab_completes_commands_nodes_and_runs(console, terminal):
    await console.ssh("run", "tiny", "x", "--detach")
    run_id = console.edge.last.record.run_id
    await terminal.begin()
    await terminal.prompted()
    await terminal.type("/und", "Tab", "Tab")
    await terminal.shows("edge-1> /undrain n1")
    await terminal.type("", "C-c")
    await terminal.type("no", "Tab", "Tab")
    await terminal.shows("node   nodes")
    await terminal.shows("edge-1> node")
    await terminal.type("", "C-c")
    await terminal.type("tail 0", "Tab")
    await terminal.shows(f"edge-1> tail {run_id}")
    await terminal.type("", "C-c")
    await terminal.type("runs --st", "Tab")
    await terminal.type("f", "Tab")
    await terminal.shows("edge-1> runs --state failed")
    await terminal.type("", "C-c")
    await terminal.type("/py", "Tab")
    await terminal.shows("edge-1> /python")


@ensure
async def test_ctrl_c_ends_a_tail_and_not_its_run(console, terminal, until):
    await terminal.begin()
    await terminal.prompted()
    await terminal.line("run tiny x --detach")
    await terminal.shows("run_id:")
    run = console.edge.last
    await terminal.line(f"tail {run.record.run_id}")
    await until(lambda: run.cursors and run.cursors[-1].callback)
    run.start()
    run.emit(events.output("half a line"))
    await terminal.shows("half a line")
    await terminal.type("", "C-c")
    await terminal.shows("half a line^C")
    await terminal.prompted()
    assert run.cancels == [] and run.cursors[-1].closed
    run.emit(events.output("unseen"))
    await terminal.line("health")
    assert "unseen" not in await terminal.shows("nodes_up")


@ensure
async def test_ctrl_c_cancels_a_run_and_ends_following_events(console, terminal, until):
    await terminal.begin()
    await terminal.prompted()
    await terminal.line("run tiny x")
    await until(lambda: console.edge.runs_by_id)
    console.edge.last.start()
    await terminal.shows("[started openai/tiny]")
    await terminal.type("", "C-c")
    await until(lambda: console.edge.last.cancels)
    await terminal.prompted()
    await terminal.line("events --follow")
    await until(lambda: console.edge.watchers)
    console.edge.happened("node_down", node_id="n1")
    await terminal.shows("node_down")
    await terminal.type("", "C-c")
    await until(lambda: not console.edge.watchers)
    await terminal.prompted()


@ensure
async def test_what_is_typed_ahead_waits_for_the_prompt(console, terminal, until):
    await terminal.begin()
    await terminal.prompted()
    await terminal.line("run tiny x")
    await until(lambda: console.edge.runs_by_id)
    await terminal.line("health")
    run = console.edge.last
    run.start()
    run.emit(events.output("out\n"))
    assert "nodes_up" not in await terminal.shows("out")
    run.end("completed")
    await terminal.shows("nodes_up")


@ensure
async def test_a_table_fits_the_window_and_follows_its_size(console, terminal):
    for number in range(9):
        console.edge.scripts["org/big"] = script()
        await console.ssh("run", "org/big", str(number), "--detach")
    await terminal.begin(60, 30)
    await terminal.prompted()
    await terminal.line("runs")
    screen = await terminal.shows("…")
    assert max(len(line) for line in screen.splitlines() if "  n1  " in line) <= 60
    await terminal.resize(140, 30)
    await terminal.type("", "C-l")
    await terminal.line("runs")
    assert "…" not in await terminal.shows("openai/org/big")


@ensure
async def test_a_long_line_scrolls_in_its_row_and_a_resize_shows_it_again(console, terminal):
    await terminal.begin(60, 20)
    await terminal.prompted()
    await terminal.type("run tiny " + "0123456789" * 10)
    screen = await terminal.shows("456789")
    assert len([line for line in screen.splitlines() if "789" in line]) == 1
    await terminal.resize(150, 20)
    await terminal.shows("edge-1> run tiny " + "0123456789" * 10)


@ensure
async def test_escape_sequences_in_output_are_shown_and_not_obeyed(console, terminal):
    hostile = "\x1b[2J\x1b]0;owned\x07\x9b31mred\r\x08over\u202egnp\n"
    console.edge.scripts["tiny"] = script(events.output("before " + hostile),
                                          events.output("err\x1bc\n", events.CHANNEL_STDERR))
    console.edge.nodes_by_id["n1"].labels["bad"] = "\x1b[31m\nnewline"
    await terminal.begin(100, 60)
    await terminal.prompted()
    await terminal.line("run tiny x")
    screen = await terminal.shows("[completed]")
    assert "before \\x1b[2J\\x1b]0;owned\\x07\\x9b31mred\\x0d\\x08over<U+202E>gnp" in screen
    assert "err\\x1bc" in screen
    await terminal.line("nodes")
    await terminal.shows("bad=\\x1b[31m\\x0anewli")
    await terminal.line("node n1")
    await terminal.shows("bad:  \\x1b[31m\\x0anewline")
    await terminal.line("nodes --json")
    await terminal.shows('"bad":"\\u001b[31m\\nnewline"')
    assert "owned" not in await terminal._tmux("display-message", "-p", "#{pane_title}")


@ensure
async def test_python_runs_audited_lines_for_keys_that_are_allowed_it(bare_console, until, need_tool):
    need_tool("tmux")
    console = bare_console
    console.key("me")
    console.authorize(console.folder / "me", into="manhole_keys")
    console.listen(manhole=True, namespace={"edge": console.edge})
    terminal = Terminal(console, until)
    await terminal.begin()
    try:
        await terminal.prompted()
        await terminal.line("/python")
        await terminal.shows("audit trail before it is executed")
        await terminal.line("edge.edge_id * 2")
        await terminal.shows("edgeedge")
        source, action, detail = console.audited[-1]
        assert (source.face, action, detail) == ("console", "python", {"line": "edge.edge_id * 2"})
        await terminal.line(r"print('\x1b[31mred')")
        await terminal.shows("\n\\x1b[31mred")
        console.audit_answer = lambda: fail(HistoryUnavailable())
        await terminal.line("edge.nodes_by_id.clear()")
        await terminal.shows("not executed")
        assert console.edge.nodes_by_id
        await terminal.type("", "C-d")
        await terminal.prompted()
        await terminal.line("nodes")
        await terminal.shows("openai/tiny")
    finally:
        await terminal.end()


@ensure
async def test_python_is_refused_to_a_key_that_is_not_allowed_it(bare_console, until, need_tool):
    need_tool("tmux")
    console = bare_console
    console.key("me")
    other = console.key("other", authorized=False)
    console.authorize(other, into="manhole_keys")
    console.listen(manhole=True, namespace={})
    terminal = Terminal(console, until)
    await terminal.begin()
    try:
        await terminal.prompted()
        await terminal.line("/python")
        await terminal.shows("This key is not among the manhole_keys")
        os.chmod(console.folder / "manhole_keys", 0o644)
        await terminal.line("/python")
        await terminal.shows("chmod 600")
    finally:
        await terminal.end()
