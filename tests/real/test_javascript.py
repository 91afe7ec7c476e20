"""The JavaScript clients of OpenAI and Ollama, and the AI SDK, at `iop up`: before a model server of chats, and a program."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.up import Up
from tests.real.npm import packages
from tests.real.scripted import Scripted, call_tool

pytestmark = pytest.mark.real

SCRIPT_S = 60
HEAD = """
const url = process.env.IOP_URL, apiKey = process.env.IOP_KEY;
const messages = [{role: "user", content: "hi"}];
const parameters = {type: "object", properties: {city: {type: "string"}}, required: ["city"]};
const tools = [{type: "function", function: {name: "weather", description: "Tells the weather.", parameters}}];
const tell = (value) => console.log(JSON.stringify(value));
const joined = async (parts, text) => {
  let told = "";
  for await (const part of parts) told += text(part) ?? "";
  return told;
};
"""
OPENAI = HEAD + """
import OpenAI from "openai";
const client = new OpenAI({baseURL: url + "/v1", apiKey, maxRetries: 0});
tell((await client.models.list()).data.map((model) => model.id));
const stream = await client.chat.completions.create({model: "echo", messages, stream: true});
tell(await joined(stream, (part) => part.choices[0].delta.content));
const called = await client.chat.completions.stream({model: "chats", messages, tools}).finalChatCompletion();
tell([called.choices[0].finish_reason, called.choices[0].message.tool_calls[0].function]);
await client.chat.completions.create({model: "no", messages}).catch((error) => tell([error.constructor.name, error.code]));
"""
OLLAMA = HEAD + """
import {Ollama} from "ollama";
const client = new Ollama({host: url, headers: {Authorization: "Bearer " + apiKey}});
tell((await client.list()).models.map((model) => model.name));
tell(await joined(await client.chat({model: "echo:latest", messages, stream: true}), (part) => part.message.content));
tell((await client.chat({model: "chats", messages, tools})).message.tool_calls[0].function);
await client.chat({model: "no", messages}).catch((error) => tell([error.name, error.status_code]));
"""
AI_SDK = HEAD + """
import {createOpenAICompatible} from "@ai-sdk/openai-compatible";
import {generateText, jsonSchema, stepCountIs, streamText, tool} from "ai";
const iop = createOpenAICompatible({name: "iop", baseURL: url + "/v1", apiKey});
tell((await generateText({model: iop("echo"), prompt: "hi"})).text);
const weather = tool({description: "Tells the weather.", inputSchema: jsonSchema(parameters), execute: async () => "22 C"});
const told = streamText({model: iop("chats"), prompt: "hi", tools: {weather}, stopWhen: stepCountIs(2)});
tell([await joined(told.textStream, (text) => text), (await told.steps).length]);
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with Scripted(call_tool("weather", {"city": "Rome"}, "It is warm.")) as chats:
        started = Up(tmp_path_factory.mktemp("javascript") / "state", f"--openai=chats={chats.url}#fake",
                     "--cli=echo=echo {prompt}")
        yield started.wait_ready()
        assert started.stop() == 0, started.words()


@pytest.fixture(scope="module")
def folder() -> Path:
    if shutil.which("node") is None:
        pytest.skip("node is not there")
    return packages("javascript", "openai@6.49.0", "ollama@0.6.4", "ai@6.0.326", "@ai-sdk/openai-compatible@2.0.92")


def told(up: Up, folder: Path, script: str) -> list[Any]:
    """What a script tells, line by line."""
    path = folder / "script.mjs"
    path.write_text(script)
    environment = os.environ | {"IOP_URL": up.ready["http"], "IOP_KEY": up.ready["api_key"], "AI_SDK_LOG_WARNINGS": "false"}
    done = subprocess.run(["node", path], env=environment, capture_output=True, text=True, timeout=SCRIPT_S)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_openais_client_streams_calls_tools_and_knows_its_errors(up: Up, folder: Path) -> None:
    names, text, called, error = told(up, folder, OPENAI)
    assert names == ["chats", "echo"] and text == "hi\n" and error == ["NotFoundError", "model_not_found"]
    assert called[0] == "tool_calls" and json.loads(called[1]["arguments"]) == {"city": "Rome"}


def test_ollamas_client_streams_calls_tools_and_knows_its_errors(up: Up, folder: Path) -> None:
    names, text, called, error = told(up, folder, OLLAMA)
    assert names == ["chats:latest", "echo:latest"] and text == "hi\n" and error == ["ResponseError", 404]
    assert (called["name"], called["arguments"]) == ("weather", {"city": "Rome"})


def test_the_ai_sdk_does_a_turn_with_a_tool(up: Up, folder: Path) -> None:
    assert told(up, folder, AI_SDK) == ["hi\n", ["It is warm.", 2]]
