"""LiteLLM's Python client at `iop up`, as a provider of OpenAI's kind, of Anthropic's and of Ollama's."""

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

WANTED = "litellm==1.110.2"
SCRIPT_S = 150
SCRIPT = '''
import json, os, litellm

url, key = os.environ["IOP_URL"], os.environ["IOP_KEY"]
WEATHER = {"type": "function", "function": {"name": "weather", "description": "Tells the weather.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
HI = [{"role": "user", "content": "hi"}]

def ask(provider, model, **more):
    base = url + "/v1" if provider == "openai" else url
    return litellm.completion(model=f"{provider}/{model}", api_base=base, api_key=key, messages=HI, max_tokens=50,
                              num_retries=0, max_retries=0, **more)

def tell(answer):
    choice = answer.choices[0]
    print(json.dumps({"text": choice.message.content or "", "why": choice.finish_reason, "tokens": answer.usage.total_tokens,
                      "calls": [[call.function.name, json.loads(call.function.arguments)]
                                for call in choice.message.tool_calls or ()]}))

def failed(call):
    try:
        call()
    except Exception as error:
        print(json.dumps([type(error).__name__, error.status_code]))
    else:
        print(json.dumps(None))

for provider in ("openai", "anthropic", "ollama_chat"):
    tell(ask(provider, "echo"))
    tell(ask(provider, "chats", tools=[WEATHER]))
    parts = list(ask(provider, "chats", tools=[WEATHER], stream=True, stream_options={"include_usage": True}))
    tell(litellm.stream_chunk_builder(parts, messages=HI))
answer = litellm.responses(model="openai/chats", api_base=url + "/v1", api_key=key, input="hi", num_retries=0)
print(json.dumps([item.content[0].text for item in answer.output if item.type == "message"]))
failed(lambda: ask("openai", "nobody"))
key = "wrong"
failed(lambda: ask("openai", "chats"))
failed(lambda: ask("anthropic", "chats"))
'''


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with Scripted(call_tool("weather", {"city": "Rome"}, "It is warm.")) as chats:
        started = Up(tmp_path_factory.mktemp("litellm") / "state", f"--openai=chats={chats.url}#fake",
                     "--cli=echo=echo {prompt}")
        yield started.wait_ready()
        assert started.stop() == 0, started.words()


def test_each_of_its_providers_answers_streams_calls_tools_and_knows_the_errors(up: Up) -> None:
    environment = os.environ | {"IOP_URL": up.ready["http"], "IOP_KEY": up.ready["api_key"], "LITELLM_LOG": "ERROR",
                                "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = subprocess.run([python_with(WANTED), "-c", SCRIPT], env=environment, capture_output=True, text=True,
                          timeout=SCRIPT_S, cwd=Path(up.state))
    assert done.returncode == 0, done.stderr[-3000:]
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(("{", "[", "null"))]
    for echo, whole, streamed in (told[0:3], told[3:6], told[6:9]):
        assert (echo["text"].strip(), echo["why"], echo["calls"]) == ("hi", "stop", [])
        assert whole == streamed == {"text": "", "why": "tool_calls", "tokens": 17, "calls": [["weather", {"city": "Rome"}]]}
    assert told[9:] == [["It is warm."], ["NotFoundError", 404], ["AuthenticationError", 401], ["AuthenticationError", 401]]
