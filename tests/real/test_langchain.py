"""LangChain's models for OpenAI and Ollama, at `iop up`: before a model server of chats, and a program."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.up import Up
from tests.real.pypi import python_with
from tests.real.scripted import Scripted, call_tool

pytestmark = pytest.mark.real

WANTED = ("langchain-openai==1.7.4", "langchain-ollama==1.1.0")
SCRIPT_S = 100
SCRIPT = '''
import json, os
from langchain_core.tools import tool
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI

@tool
def weather(city: str) -> str:
    """Tells the weather."""
    return "22 C"

url, key = os.environ["IOP_URL"], os.environ["IOP_KEY"]

def openai(model):
    return ChatOpenAI(model=model, base_url=url + "/v1", api_key=key, max_retries=0, stream_usage=True)

def ollama(model):
    return ChatOllama(model=model, base_url=url, client_kwargs={"headers": {"Authorization": "Bearer " + key}})

def tell(message):
    print(json.dumps({"text": message.content, "calls": [[call["name"], call["args"]] for call in message.tool_calls],
                      "tokens": (message.usage_metadata or {}).get("total_tokens")}))

for made in (openai, ollama):
    for model in (made("echo"), made("chats").bind_tools([weather])):
        tell(model.invoke("hi"))
        parts = list(model.stream("hi"))
        tell(sum(parts[1:], parts[0]))
'''


@pytest.fixture(scope="module")
def python() -> Path:
    return python_with(*WANTED)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with Scripted(call_tool("weather", {"city": "Rome"}, "It is warm.")) as chats:
        started = Up(tmp_path_factory.mktemp("langchain") / "state", f"--openai=chats={chats.url}#fake",
                     "--cli=echo=echo {prompt}")
        yield started.wait_ready()
        assert started.stop() == 0, started.words()


def test_both_of_its_models_answer_stream_and_call_tools(up: Up, python: Path) -> None:
    environment = os.environ | {"IOP_URL": up.ready["http"], "IOP_KEY": up.ready["api_key"]}
    done = subprocess.run([python, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=SCRIPT_S)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["text"], one["calls"]) for one in told] == [("hi\n", []), ("hi\n", []),
                                                             *[("", [["weather", {"city": "Rome"}]])] * 2] * 2
    assert [one["tokens"] for one in told if one["calls"]] == [17] * 4
