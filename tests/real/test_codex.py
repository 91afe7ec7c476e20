"""The real codex CLI, doing its work through IOP: `iop up` before a model server that knows chat/completions only, and before
a real llama.cpp, which has the Responses API itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.up import Up, eventually
from tests.real.llama import LlamaServer
from tests.real.npm import CACHE, program
from tests.real.scripted import Call, Play, Reply, Scripted, call_tool, run_command, say

pytestmark = pytest.mark.real

CODEX = ("@openai/codex", "0.171.0", "codex")
TURN_S = 120
CONFIG = """model = "{model}"
model_provider = "iop"
[model_providers.iop]
name = "IOP"
base_url = "{url}/v1"
env_key = "IOP_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
[analytics]
enabled = false
"""


class Codex:
    """The program in a folder of its own, told of one edge. Its home must not lie under the temporary folder."""

    def __init__(self, up: Up, model: str, folder: Path) -> None:
        self.program = program(*CODEX)
        self.up, self.model, self.folder = up, model, folder
        self.home = CACHE / f"codex-home-{os.getpid()}"
        folder.mkdir()
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)

    def start(self, prompt: str, *options: str) -> subprocess.Popen[str]:
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "config.toml").write_text(CONFIG.format(model=self.model, url=self.up.ready["http"]))
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("CODEX", "OPENAI"))}
        environment |= {"CODEX_HOME": str(self.home), "HOME": str(self.home), "IOP_KEY": self.up.ready["api_key"]}
        return subprocess.Popen(
            [str(self.program), "exec", "--json", "--skip-git-repo-check", "-s", "danger-full-access", *options, prompt],
            cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True)

    def __call__(self, prompt: str, *options: str) -> list[dict[str, Any]]:
        """The events of one turn."""
        process = self.start(prompt, *options)
        try:
            told, _ = process.communicate(timeout=TURN_S)
        finally:
            process.kill()
        return [json.loads(line) for line in told.splitlines()]

    def runs(self) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = self.up.client.get("/api/v1/runs")["runs"]
        return runs


Start = Callable[[str, str], Codex]


@pytest.fixture
def codex(tmp_path: Path) -> Iterator[Start]:
    """`codex("fake", url)`: the program before an `iop up` with that model at that URL."""
    started: list[Codex] = []

    def start(model: str, url: str) -> Codex:
        program(*CODEX)
        up = Up(tmp_path / "state", "--openai", f"{model}={url}")
        started.append(Codex(up, model, tmp_path / "project"))
        up.wait_ready()
        return started[-1]

    yield start
    for one in started:
        shutil.rmtree(one.home, ignore_errors=True)
        assert one.up.stop() == 0, one.up.words()


@pytest.fixture
def scripted() -> Iterator[Callable[[Play], Scripted]]:
    opened: list[Scripted] = []

    def start(play: Play) -> Scripted:
        opened.append(Scripted(play).__enter__())
        return opened[-1]

    yield start
    for server in opened:
        server.__exit__()


def items(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event["item"] for event in events if event["type"] == "item.completed" and event["item"]["type"] == kind]


def results(server: Scripted) -> list[str]:
    """What codex told the model of its calls, in the last chat."""
    return [message["content"] for message in server.asked[-1]["messages"] if message["role"] == "tool"]


def test_a_whole_turn_with_a_tool_before_a_chat_backend(codex: Start, scripted: Callable[[Play], Scripted]) -> None:
    backend = scripted(run_command("echo hello-$((40 + 2))", "The command printed hello-42.", "Let me run it."))
    run = codex("fake", backend.url)
    events = run("Please run it")
    command, = items(events, "command_execution")
    assert (command["exit_code"], command["aggregated_output"]) == (0, "hello-42\n")
    assert [item["text"] for item in items(events, "agent_message")] == ["The command printed hello-42."]
    assert [item["text"].strip() for item in items(events, "reasoning")] == ["Let me run it."]
    assert events[-1]["type"] == "turn.completed"
    assert events[-1]["usage"] | {"cache_write_input_tokens": 0} == {
        "input_tokens": 22, "cached_input_tokens": 6, "cache_write_input_tokens": 0, "output_tokens": 12,
        "reasoning_output_tokens": 0}
    assert backend.paths == ["/v1/chat/completions"] * 2, "with codex's tools it is told at once"
    assert "hello-42" in results(backend)[0]
    assert backend.asked[1]["messages"][-2]["reasoning_content"].strip() == "Let me run it.", "the thought comes back"
    assert [one["state"] for one in run.runs()] == ["completed", "completed"]


def test_calls_of_a_namespace_reach_the_tool_that_is_meant(codex: Start, scripted: Callable[[Play], Scripted]) -> None:
    backend = scripted(call_tool("multi_agent_v1__close_agent", {"target": "nobody"}, "Nobody is there."))
    events = codex("fake", backend.url)("Close it")
    assert events[-1]["type"] == "turn.completed"
    assert "unsupported call" not in results(backend)[0] and "nobody" in results(backend)[0]


PATCH = "*** Begin Patch\n*** Add File: made.txt\n+made by a custom tool\n*** End Patch\n"


def test_a_custom_tool_gets_its_own_text(codex: Start, scripted: Callable[[Play], Scripted]) -> None:
    backend = scripted(call_tool("apply_patch", {"input": PATCH}, "Done."))
    run = codex("gpt-5.5", backend.url)          # a name that codex knows, as one with custom tools
    events = run("Patch it")
    assert "apply_patch" in [tool["function"]["name"] for tool in backend.asked[0]["tools"]]
    assert (run.folder / "made.txt").read_text() == "made by a custom tool\n"
    assert len(items(events, "file_change")) == 1 and events[-1]["type"] == "turn.completed"


def test_two_calls_at_once_are_both_run(codex: Start, scripted: Callable[[Play], Scripted]) -> None:
    def play(body: dict[str, Any]) -> Reply:
        if any(message["role"] == "tool" for message in body["messages"]):
            return Reply("Both.")
        return Reply("Two at once.", calls=[Call("exec_command", {"cmd": f"echo number-{word}"}) for word in ("one", "two")])
    backend = scripted(play)
    events = codex("fake", backend.url)("Run both")
    assert {item["aggregated_output"] for item in items(events, "command_execution")} == {"number-one\n", "number-two\n"}
    assert [item["text"] for item in items(events, "agent_message")] == ["Two at once.", "Both."]
    last = backend.asked[-1]["messages"]
    assert [len(message.get("tool_calls", ())) for message in last if message["role"] == "assistant"] == [2]
    assert len(results(backend)) == 2


@pytest.mark.parametrize(("play", "word"), [
    (say("half an answer", cut=True), "stream"), (say("The disk is full.", status=500), "high demand"),
    (say("This model's maximum context length is 8 tokens.", status=400), "context"), (say("Slow down.", status=429), "429")])
def test_a_failure_ends_the_turn_and_says_why(
        codex: Start, scripted: Callable[[Play], Scripted], play: Play, word: str) -> None:
    events = codex("fake", scripted(play).url)("Say something")
    assert events[-1]["type"] == "turn.failed"
    assert word in events[-1]["error"]["message"], events[-1]


def test_a_codex_that_is_stopped_stops_its_run(codex: Start, scripted: Callable[[Play], Scripted]) -> None:
    backend = scripted(say("word " * 600, pause_s=0.1))
    run = codex("fake", backend.url)
    process = run.start("Talk")
    eventually(lambda: [one["state"] for one in run.runs()] == ["running"], "it is answered")
    process.terminate()
    process.wait(10)
    eventually(lambda: [one["state"] for one in run.runs()] == ["cancelled"], "the run has ended with its client", 5)


def test_a_turn_before_a_backend_that_has_the_api_itself(codex: Start, llama_server: Callable[..., LlamaServer],
                                                         tmp_path: Path) -> None:
    """llama.cpp would pass over codex's tools that are no functions, so that it is asked as a chat."""
    server = llama_server("hello", ctx=131_072, parallel=1)
    short = tmp_path / "instructions.md"
    short.write_text("Be brief.")
    run = codex("hello", server.api)
    events = run("Say hi", "-c", f"model_instructions_file={short}")
    assert [item["text"] for item in items(events, "agent_message")] == [
        "Hello from a real llama.cpp server, driven by IOP on your own machine."]
    assert events[-1]["type"] == "turn.completed" and events[-1]["usage"]["output_tokens"] > 10
