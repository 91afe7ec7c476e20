"""A llama.cpp server that the node starts itself: on first use, one for all runs, again after a kill, and gone when idle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import openai
import pytest

from iop import yamlfile
from tests.e2e.up import PATIENCE_S, Up, eventually, is_running, processes_with

ROOT = Path(__file__).resolve().parent.parent.parent
IDLE_S = 3.0
GB = 1_000_000_000
Server = Callable[[str], list[int]]
HELLO = [{"role": "user", "content": "Count."}]


def serve(folder: Path, model: str, **more: object) -> dict[str, object]:
    argv = [sys.executable, str(ROOT / "tools" / "llama_server.py"), "--model", str(folder / f"{model}.gguf"), "--alias",
            model, "--ctx", "8192", "--threads", "1", "--port", "{port}"]
    return {"model": model, "serve": {"argv": argv, "idle_s": 0, "memory_bytes": GB} | more}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    subprocess.run([sys.executable, ROOT / "tools" / "tiny_gguf.py", folder], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def up(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """`iop up`, and again with targets in its node.yaml that say how their server is started."""
    state = tmp_path_factory.mktemp("up") / "state"
    assert Up(state).wait_ready().stop() == 0
    file = state / "node-1" / "node.yaml"
    node = yamlfile.load(str(file)).value
    node["servers"] = {"memory_bytes": 3 * GB}
    node["adapters"] = {"openai": {"targets": {
        "count": serve(models, "count"), "again": serve(models, "count"), "loop": serve(models, "loop"),
        "hello": serve(models, "hello", idle_s=IDLE_S), "broken": serve(models, "nothing", restarts=1),
        "large": serve(models, "tool", memory_bytes=2 * GB)}}}
    file.write_text(yamlfile.dump(node))
    up = Up(state)
    yield up.wait_ready()
    assert up.stop() == 0, up.words()
    assert processes_with(str(models)) == []


@pytest.fixture
def client(up: Up) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=up.ready["http"] + "/v1", api_key=up.ready["api_key"], max_retries=0) as client:
        yield client


@pytest.fixture
def server(models: Path) -> Server:
    """The processes that serve a model; supervisors do not have it in their command line."""
    return lambda model: processes_with(str(models / f"{model}.gguf"))


def chat(client: openai.OpenAI, model: str, **more: object) -> str:
    answer = client.chat.completions.create(model=model, messages=HELLO, **({"max_tokens": 20} | more))
    return answer.choices[0].message.content


def words_of(up: Up, run_id: str) -> list[str]:
    """The status words of a run, in order."""
    found = up.client.get(f"/api/v1/runs/{run_id}/events")["events"]
    return [event["word"] for event in found if event["type"] == "status"]


def test_it_starts_on_first_use_tells_that_it_loads_and_is_shared(up: Up, server: Server, client: openai.OpenAI):
    assert server("count") == []
    assert {"count", "again", "hello"} <= {model.id for model in client.models.list()}
    run_id = up.run_id("-a", "openai", "-t", "count", "hi")
    assert up.ended(run_id)["state"] == "completed"
    assert "loading" in words_of(up, run_id)
    [pid] = server("count")
    assert chat(client, "count").split()[:3] == ["Counting:", "1", "2"]
    assert chat(client, "again").split()[:3] == ["Counting:", "1", "2"]
    assert server("count") == [pid]


def test_two_that_come_at_once_start_one(up: Up, server: Server, client: openai.OpenAI):
    assert server("loop") == []
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(chat(client, "loop"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(answers) == 4 and len(server("loop")) == 1


def test_it_is_unloaded_when_it_is_idle_and_started_again_when_it_is_needed(up: Up, server: Server, client: openai.OpenAI):
    assert "Hello from" in chat(client, "hello", max_tokens=200)
    [pid] = server("hello")
    eventually(lambda: not is_running(pid), "the idle server is gone", IDLE_S + 20)
    assert server("hello") == [] and chat(client, "hello")
    assert len(server("hello")) == 1


def test_after_a_kill_it_is_started_again_and_those_who_waited_are_served(up: Up, server: Server, client: openai.OpenAI):
    """Two slots are taken by endless answers, so that the third request waits inside the server when that is killed."""
    endless = [client.chat.completions.create(model="loop", messages=HELLO, max_tokens=8000, stream=True) for _ in range(2)]
    for stream in endless:
        next(iter(stream))
    [pid] = server("loop")
    answers: list[str] = []
    waiting = [threading.Thread(target=lambda: answers.append(chat(client, "loop"))) for _ in range(3)]
    for thread in waiting:
        thread.start()
    time.sleep(0.5)
    os.kill(pid, signal.SIGKILL)
    for thread in waiting:
        thread.join(PATIENCE_S)
    assert len(answers) == 3 and all(answers)
    [after] = server("loop")
    assert after != pid
    for stream in endless:                       # they had output: told as broken, never as whole
        with pytest.raises((openai.APIError, openai.APIConnectionError)):
            for _ in stream:
                pass


def test_one_that_cannot_start_is_told_with_its_last_words_and_nothing_else_is_disturbed(up: Up, client: openai.OpenAI):
    with pytest.raises(openai.APIStatusError) as caught:
        chat(client, "broken")
    assert "exit code" in str(caught.value) or "signal" in str(caught.value)
    assert chat(client, "count")


def test_a_cancel_while_it_loads_gives_the_slot_back_at_once(up: Up, server: Server):
    """The server is stopped as soon as it is there, so that it never gets ready."""
    run_id = up.run_id("-a", "openai", "-t", "large", "hi")
    [pid] = eventually(lambda: server("tool"), "the server is starting")
    os.kill(pid, signal.SIGSTOP)
    try:
        assert up.run(run_id)["state"] in ("placed", "running")
        began = time.monotonic()
        up.iop("cancel", run_id)
        assert up.ended(run_id)["state"] == "cancelled" and time.monotonic() - began < 5
        assert is_running(pid)
    finally:
        os.kill(pid, signal.SIGCONT)


def test_after_a_node_was_killed_the_server_is_taken_up_again(up: Up, server: Server, client: openai.OpenAI):
    assert chat(client, "count")
    [pid] = server("count")
    before = up.ready["node_pids"]
    os.kill(before[0], signal.SIGKILL)
    eventually(lambda: up.is_ready() and up.ready["node_pids"] != before, "the node is started again")
    eventually(lambda: _answers(client), "the node answers again")
    assert server("count") == [pid]


@pytest.mark.parametrize("later_s", [0.0, 0.1, 0.3])
def test_a_node_that_is_killed_while_a_server_starts_leaves_one_at_most(up: Up, server: Server, client: openai.OpenAI,
                                                                               later_s: float):
    eventually(lambda: up.iop("node", "unload", "hello").returncode == 0 and not server("hello"), "it does not run")
    up.run_id("-a", "openai", "-t", "hello", "hi")
    eventually(lambda: server("hello"), "it starts")
    time.sleep(later_s)
    before = up.ready["node_pids"]
    os.kill(before[0], signal.SIGKILL)
    eventually(lambda: up.is_ready() and up.ready["node_pids"] != before, "the node is started again")
    eventually(lambda: _answers(client, "hello"), "it answers")
    assert len(server("hello")) == 1


def test_a_node_that_is_started_again_in_place_keeps_its_servers(up: Up, server: Server, client: openai.OpenAI):
    assert chat(client, "count")
    [pid] = server("count")
    assert up.iop("node", "restart").returncode == 0, up.words()
    eventually(lambda: _answers(client), "the node answers again")
    assert server("count") == [pid]


def test_a_person_sees_the_models_loads_one_and_unloads_it(up: Up, server: Server):
    eventually(lambda: not server("hello"), "it is idle", IDLE_S + 20)
    rows = {row["target"]: row for row in json.loads(up.iop("node", "models", "--json").stdout)}
    assert rows["openai/hello"]["state"] == "cold"
    told = up.iop("node", "load", "hello")
    assert told.returncode == 0 and "hello is there" in told.stdout, told.stderr
    rows = {row["target"]: row for row in json.loads(up.iop("node", "models", "--json").stdout)}
    assert rows["openai/hello"]["state"] == "warm" and server("hello") == [rows["openai/hello"]["pid"]]
    assert "openai/hello" in up.iop("node", "models").stdout
    assert up.iop("node", "unload", "hello").returncode == 0
    eventually(lambda: not server("hello"), "the server is gone")
    refused = up.iop("node", "load", "nothing")
    assert refused.returncode == 3 and "openai/hello" in refused.stderr


def test_the_load_of_the_machine_is_shown(up: Up):
    node = eventually(lambda: next((one for one in up.client.get("/api/v1/nodes")["nodes"] if one["load"]), None), "a load")
    assert 0 <= node["load"]["busy"] <= 1 and 0 < node["load"]["memory_used_bytes"] < node["load"]["memory_total_bytes"]
    assert "LOAD" in up.iop("nodes").stdout


def _answers(client: openai.OpenAI, model: str = "count") -> bool:
    try:
        return bool(chat(client, model))
    except openai.APIStatusError:
        return False
