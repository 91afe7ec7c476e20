"""A real llama.cpp server behind `iop up`, asked by the official OpenAI client and by `iop run`."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import openai
import pytest

from tests.e2e.up import Up, eventually

ROOT = Path(__file__).resolve().parent.parent.parent


class Llama:
    """One llama.cpp server with a tiny model whose text is known."""

    def __init__(self, folder: Path, model: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, ROOT / "tools" / "llama_server.py", "--model", folder / f"{model}.gguf", "--ctx", "8192"],
            stdout=subprocess.PIPE, stderr=(folder / f"{model}.log").open("w"), text=True)
        self.url = json.loads(self.process.stdout.readline())["listening"]
        eventually(lambda: self._get("/health"), "the model is loaded")

    def _get(self, path: str) -> object:
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as answer:
                return json.load(answer)
        except OSError:
            return None

    def busy(self) -> int:
        return sum(slot["is_processing"] for slot in self._get("/slots"))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    subprocess.run([sys.executable, ROOT / "tools" / "tiny_gguf.py", folder], check=True, capture_output=True)
    found = {name: Llama(folder, name) for name in ("count", "loop")}
    yield found
    for model in found.values():
        model.stop()


@pytest.fixture(scope="module")
def up(models, tmp_path_factory):
    up = Up(tmp_path_factory.mktemp("up") / "state", *(f"--openai={name}={model.url}/v1" for name, model in models.items()))
    yield up.wait_ready()
    assert up.stop() == 0, up.words()


@pytest.fixture
def client(up):
    with openai.OpenAI(base_url=up.ready["http"] + "/v1", api_key=up.ready["api_key"], max_retries=0) as client:
        yield client


HELLO = [{"role": "user", "content": "Count."}]


def test_the_models_are_listed(client):
    assert {"count", "loop"} <= {model.id for model in client.models.list()}


def test_a_chat_answers_whole(client):
    answer = client.chat.completions.create(model="count", messages=HELLO, max_tokens=20)
    assert answer.choices[0].message.content.split()[:4] == ["Counting:", "1", "2", "3"]
    assert answer.usage.completion_tokens > 0 and answer.choices[0].finish_reason == "length"


def test_a_chat_streams(client):
    chunks = list(client.chat.completions.create(model="count", messages=HELLO, max_tokens=20, stream=True,
                                                 stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text.split()[:4] == ["Counting:", "1", "2", "3"] and len(chunks) > 10
    assert chunks[-1].usage.completion_tokens > 0


def test_a_bad_key_is_a_typed_error(up):
    with openai.OpenAI(base_url=up.ready["http"] + "/v1", api_key="iopo_wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError):
            client.models.list()


def test_an_unknown_model_is_a_typed_error(client):
    with pytest.raises(openai.NotFoundError, match="nothing"):
        client.chat.completions.create(model="nothing", messages=HELLO)


def test_a_bad_request_is_the_backend_s_own_error(client):
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="count", messages=HELLO, extra_body={"temperature": "warm"})


def test_iop_run_streams_the_tokens_as_they_come(up, models):
    run = up.start("run", "-a", "openai", "-t", "loop", "go")
    first = run.stdout.read(5)
    assert first.strip() and run.poll() is None
    assert models["loop"].busy() == 1
    run.terminate()
    assert run.wait(30) == 130
    eventually(lambda: models["loop"].busy() == 0, "the backend has stopped", 5)


def test_a_client_that_goes_away_stops_the_backend(client, models):
    stream = client.chat.completions.create(model="loop", messages=HELLO, stream=True, max_tokens=8000)
    next(iter(stream))
    assert models["loop"].busy() == 1
    stream.close()
    eventually(lambda: models["loop"].busy() == 0, "the backend has stopped", 5)


def test_an_upstream_that_is_down_is_a_typed_error_and_nothing_else_is_disturbed(bring_up, models):
    up = bring_up("--openai", "down=http://127.0.0.1:9/v1", "--openai", f"count={models['count'].url}/v1")
    told = up.iop("run", "-a", "openai", "-t", "down", "hi")
    assert told.returncode == 1 and "[upstream_error]" in told.stderr
    assert up.iop("run", "-a", "openai", "-t", "count", "hi").returncode == 0
