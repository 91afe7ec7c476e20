"""Official clients at `iop up`: Ollama's before a real llama.cpp server, one of chats and a program; forms that pass."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import ollama
import openai
import pytest

from iop.forms import field_text
from tests.e2e.up import Up
from tests.real.llama import LlamaServer
from tests.real.scripted import Scripted, call_tool

HI: Any = [{"role": "user", "content": "hi"}]
HELLO = "Hello from a real llama.cpp server, driven by IOP on your own machine."
SOUND = b"RIFF\x00\xff\r\n--not the boundary\r\n"
WEATHER: Any = {"type": "function", "function": {"name": "weather", "description": "Tells the weather.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


class Studio:
    """A backend of audio, images and embeddings, which keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                self._answer("application/json", b'{"data":[{"id":"studio"}]}')

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
                kind, told = {
                    "/v1/audio/transcriptions": ("text/plain; charset=utf-8", b"hello \xc3\xa4\n"),
                    "/v1/audio/speech": ("audio/mpeg", b"\xff\xfb\x00" * 50_000),
                    "/v1/embeddings": ("application/json", b'{"data":[{"index":0,"embedding":[1.50,-2]}],"usage":{}}'),
                }[self.path]
                self._answer(kind, told)

            def _answer(self, kind: str, told: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(told)))
                self.end_headers()
                self.wfile.write(told)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(5)


@pytest.fixture(scope="module")
def studio() -> Iterator[Studio]:
    studio = Studio()
    yield studio
    studio.stop()


@pytest.fixture(scope="module")
def chats() -> Iterator[Scripted]:
    with Scripted(call_tool("weather", {"city": "Rome"}, "It is warm.")) as scripted:
        yield scripted


@pytest.fixture(scope="module")
def up(studio: Studio, chats: Scripted, llama_server: Callable[..., LlamaServer],
       tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    started = Up(tmp_path_factory.mktemp("faces") / "state", f"--openai=hello={llama_server('hello').api}",
                 f"--openai=studio={studio.url}#backend-name", f"--openai=chats={chats.url}#fake", "--cli=echo=echo {prompt}")
    yield started.wait_ready()
    assert started.stop() == 0, started.words()


@pytest.fixture(scope="module")
def client(up: Up) -> openai.OpenAI:
    return openai.OpenAI(base_url=up.ready["http"] + "/v1", api_key=up.ready["api_key"], max_retries=0, timeout=30)


@pytest.fixture(scope="module")
def native(up: Up) -> ollama.Client:
    return ollama.Client(up.ready["http"], headers={"Authorization": f"Bearer {up.ready['api_key']}"}, timeout=30)


# --- Ollama's client

def test_the_ollama_client_finds_the_models(native: ollama.Client) -> None:
    assert {model.model for model in native.list().models} == {"hello:latest", "studio:latest", "chats:latest", "echo:latest"}


@pytest.mark.parametrize(("model", "text"), [("hello:latest", HELLO), ("echo", "hi\n")])
def test_the_ollama_client_chats_with_any_backend(native: ollama.Client, model: str, text: str) -> None:
    parts = list(native.chat(model, HI, stream=True))
    assert "".join(part.message.content for part in parts) == text
    assert parts[-1].done and parts[-1].done_reason == "stop" and parts[-1].total_duration > 0
    assert native.chat(model, HI).message.content == text
    assert native.generate(model, "hi").response == text


def test_the_ollama_client_bounds_its_tokens(native: ollama.Client) -> None:
    answer = native.chat("hello", HI, options={"num_predict": 3})
    assert HELLO.startswith(answer.message.content) and answer.done_reason == "length" and answer.eval_count == 3


def test_the_ollama_client_calls_tools(native: ollama.Client) -> None:
    for message in (native.chat("chats", HI, tools=[WEATHER]).message,
                    list(native.chat("chats", HI, tools=[WEATHER], stream=True))[-1].message):
        call = message.tool_calls[0].function
        assert (call.name, call.arguments) == ("weather", {"city": "Rome"})
    turns = [*HI, message, {"role": "tool", "content": "22 C", "tool_name": "weather"}]
    assert native.chat("chats", turns, tools=[WEATHER]).message.content == "It is warm."


def test_the_ollama_client_embeds(native: ollama.Client) -> None:
    assert native.embed("studio", "a").embeddings == [[1.5, -2.0]]


# --- OpenAI's client

def test_older_completions_come_from_a_backend_and_from_a_program(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="hello", prompt="Hello", max_tokens=2, temperature=0)
    assert answer.choices[0].text in HELLO and answer.usage.completion_tokens == 2
    told = list(client.completions.create(model="echo", prompt="Once", stream=True))
    assert "".join(chunk.choices[0].text for chunk in told) == "Once\n"
    assert client.completions.create(model="chats", prompt="Once").choices[0].text == "It is warm."


def test_a_form_reaches_the_backend_with_its_own_name_for_the_model_and_without_the_key(
        client: openai.OpenAI, up: Up, studio: Studio) -> None:
    heard = client.audio.transcriptions.create(model="studio", file=("a.wav", SOUND), response_format="text", language="de")
    assert heard == "hello \u00e4\n"
    path, headers, body = studio.asked[-1]
    assert field_text(body, headers["content-type"], "model") == "backend-name"
    assert field_text(body, headers["content-type"], "language") == "de"
    assert path == "/v1/audio/transcriptions" and SOUND in body
    assert up.ready["api_key"] not in json.dumps(headers)


def test_bytes_come_back_exactly(client: openai.OpenAI) -> None:
    spoken = client.audio.speech.create(model="studio", input="hi", voice="alloy")
    assert spoken.response.headers["content-type"] == "audio/mpeg"
    assert spoken.read() == b"\xff\xfb\x00" * 50_000


def test_embeddings_are_the_backends_own_text(client: openai.OpenAI, studio: Studio) -> None:
    raw = client.embeddings.with_raw_response.create(model="studio", input="a", encoding_format="float", user="u")
    assert raw.content == b'{"data":[{"index":0,"embedding":[1.50,-2]}],"usage":{}}'
    assert json.loads(studio.asked[-1][2]) == {"model": "backend-name", "input": "a", "encoding_format": "float", "user": "u"}
    assert raw.headers["x-iop-placement"] and raw.headers["x-iop-node"]


def test_what_a_backend_lacks_is_its_own_error(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as raised:
        client.images.generate(model="chats", prompt="x")
    assert 400 <= raised.value.status_code < 600 and raised.value.response.headers["x-iop-run-id"]
