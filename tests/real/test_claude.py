"""The real Claude Code from npm, whole turns through `iop up`: its own API, whatever the backend speaks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.up import Up, eventually
from tests.real.llama import LlamaServer
from tests.real.npm import program
from tests.real.scripted import Call, Reply, Scripted, run_command, say

pytestmark = pytest.mark.real
VERSION, NEWEST = "2.1.197", "2.1.332"       # what npm gives on node 20; the newest that was tried
TURN_S = 120
QUIET = {name: "1" for name in ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER",
                                "DISABLE_ERROR_REPORTING", "CLAUDE_CODE_MAX_RETRIES")}
FULL_PROMPT_BYTES = 40_000   # of what it asks a model, tools included: 78,000 and 50,000 in these two
BARE = ("--bare", "--tools", "", "--system-prompt", "x")


@dataclass
class Claude:
    """Claude Code with a home and a workspace of its own, at one IOP."""

    path: Path
    folder: Path
    up: Up
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *words: str, model: str = "claude-fake") -> subprocess.Popen[str]:
        home, work = self.folder / "home", self.folder / "work"
        home.mkdir(exist_ok=True)
        work.mkdir(exist_ok=True)
        ready = self.up.ready
        env = QUIET | {"PATH": os.environ["PATH"], "HOME": str(home), "ANTHROPIC_BASE_URL": ready["http"],
                       "ANTHROPIC_API_KEY": ready["api_key"]}
        command = [str(self.path), "-p", "Please run it.", "--output-format", "stream-json", "--verbose", "--model", model]
        process = subprocess.Popen([*command, *words], cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    def turn(self, *words: str, model: str = "claude-fake") -> list[dict[str, Any]]:
        """What it tells of one turn; the last is its result."""
        out, err = self.start(*words, model=model).communicate(timeout=TURN_S)
        told = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        assert told and told[-1]["type"] == "result", f"no result\n{out[-2000:]}\n{err[-2000:]}\n{self.up.words()}"
        return told


@pytest.fixture(scope="module")
def backend() -> Iterator[Scripted]:
    with Scripted(say("Nothing to say.")) as scripted:
        yield scripted


@pytest.fixture(scope="module")
def up(backend: Scripted, llama_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    llama: LlamaServer = llama_server("hello", ctx=16_384, parallel=1)
    started = Up(tmp_path_factory.mktemp("claude") / "state", f"--openai=claude-fake={backend.url}#fake",
                 f"--openai=claude-llama={llama.api}#hello")
    yield started.wait_ready()
    assert started.stop() == 0, started.words()


@pytest.fixture
def claude(request: pytest.FixtureRequest, up: Up, tmp_path: Path) -> Iterator[Claude]:
    version = getattr(request, "param", VERSION)
    made = Claude(program("@anthropic-ai/claude-code", version, "claude"), tmp_path, up)
    yield made
    for process in made.processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def blocks(told: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [block for line in told if line["type"] in ("assistant", "user")
            for block in line["message"]["content"] if isinstance(block, dict) and block["type"] == kind]


@pytest.mark.parametrize("claude", [VERSION, NEWEST], indirect=True)
def test_a_whole_turn_with_a_tool_at_a_backend_that_knows_only_chats(claude: Claude, backend: Scripted) -> None:
    backend.play = run_command("echo hello-tool", "It printed hello-tool.", reasoning="I should run it.")
    backend.asked.clear()
    told = claude.turn("--allowedTools", "Bash")
    result = told[-1]
    assert (result["is_error"], result["result"], result["stop_reason"]) == (False, "It printed hello-tool.", "end_turn")
    assert [block["content"] for block in blocks(told, "tool_result")] == ["hello-tool"], "the tool has really run"
    assert blocks(told, "thinking")[0]["thinking"].strip() == "I should run it."
    assert (result["usage"]["output_tokens"], result["usage"]["cache_read_input_tokens"]) == (12, 6)

    first, second = backend.asked
    assert len(json.dumps(first)) > FULL_PROMPT_BYTES and first["stream_options"] == {"include_usage": True}
    assert "x-anthropic-billing-header" not in json.dumps(first)
    assert second["messages"][:len(first["messages"])] == first["messages"], "the prefix is the same: a cache serves it"
    call, answer = second["messages"][-2:]
    assert call["tool_calls"][0]["function"]["name"] == "Bash" and call["reasoning_content"].strip() == "I should run it."
    assert (answer["role"], answer["tool_call_id"], answer["content"]) == ("tool", call["tool_calls"][0]["id"], "hello-tool")


def test_two_tools_at_once(claude: Claude, backend: Scripted) -> None:
    def play(body: dict[str, Any]) -> Reply:
        answers = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        if answers:
            return Reply("They printed " + " and ".join(answers) + ".")
        calls = [Call("Bash", {"command": f"echo {word}", "description": f"Print {word}"}) for word in ("one", "two")]
        return Reply("Both at once.", calls=calls)
    backend.play = play
    told = claude.turn("--allowedTools", "Bash")
    assert [block["id"] for block in blocks(told, "tool_use")] == ["call_0", "call_1"]
    assert told[-1]["result"] == "They printed one and two." and not told[-1]["permission_denials"]


def test_its_runs_are_known_by_their_session(claude: Claude, backend: Scripted, up: Up) -> None:
    backend.play = say("Done.")
    told = claude.turn(*BARE)
    run = up.run(json.loads(up.iop("runs", "--json").stdout.splitlines()[0])["run_id"])
    assert (run["state"], run["source"]["face"]) == ("completed", "anthropic")
    assert run["source"]["request_id"] == next(line["request_id"] for line in told if line["type"] == "assistant")


def test_text_comes_as_it_arises(claude: Claude, backend: Scripted) -> None:
    backend.play = say("one two three four five", pause_s=0.2)
    told = claude.turn(*BARE, "--include-partial-messages")
    raw = [line["event"] for line in told if line["type"] == "stream_event"]
    assert [event["type"] for event in raw if event["type"] != "content_block_delta"] == [
        "message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"]
    assert len([event for event in raw if event["type"] == "content_block_delta"]) >= 4
    assert told[-1]["result"] == "one two three four five"


def test_a_turn_at_a_real_model(claude: Claude) -> None:
    """llama.cpp has the API; what Claude Code sends is told as a chat all the same (docs/adr/0023-messages.md)."""
    told = claude.turn(*BARE, "--include-partial-messages", model="claude-llama")
    assert not told[-1]["is_error"] and told[-1]["result"].startswith("Hello from a real llama.cpp server")
    assert told[-1]["usage"]["input_tokens"] + told[-1]["usage"]["cache_read_input_tokens"] > 0
    assert told[-1]["usage"]["output_tokens"] > 5
    kinds = {line["event"]["type"] for line in told if line["type"] == "stream_event"}
    assert {"message_start", "content_block_delta", "message_stop"} <= kinds


def test_a_model_with_less_room_than_it_asks_for(claude: Claude, backend: Scripted) -> None:
    def play(body: dict[str, Any]) -> Reply:
        if "max_tokens" in body:
            return Reply(f"max_tokens={body['max_tokens']} cannot be greater than max_model_len=1024.", status=400)
        return Reply("There was room.")
    backend.play = play
    assert claude.turn(*BARE)[-1]["result"] == "There was room."


def test_a_prompt_that_is_too_long_is_understood(claude: Claude, backend: Scripted) -> None:
    backend.play = lambda body: Reply("This model's maximum context length is 1024 tokens.", status=400)
    told = claude.turn(*BARE)
    assert told[-1]["is_error"] and "Prompt is too long" in json.dumps(told)


def test_a_stream_that_breaks_is_asked_for_again_and_never_joined(claude: Claude, backend: Scripted) -> None:
    replies = [Reply("half of", cut=True), Reply("The whole of it.")]
    backend.play = lambda body: replies.pop(0) if len(replies) > 1 else replies[0]
    told = claude.turn(*BARE)
    assert (told[-1]["is_error"], told[-1]["result"]) == (False, "The whole of it.")


def test_leaving_stops_the_run(claude: Claude, backend: Scripted, up: Up) -> None:
    backend.play = say(" ".join(["word"] * 500), pause_s=0.1)
    backend.asked.clear()
    process = claude.start(*BARE)
    eventually(lambda: backend.asked, "the model is asked")
    run_id = str(json.loads(up.iop("runs", "--json").stdout.splitlines()[0])["run_id"])
    process.send_signal(signal.SIGINT)
    left = time.monotonic()
    assert up.ended(run_id)["state"] == "cancelled"
    assert time.monotonic() - left < 20
