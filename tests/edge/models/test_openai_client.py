"""The official client against the OpenAI face, over loopback."""

import json
import socket
from functools import partial

import openai
import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from iop import events
from iop.errors import ProgramFailed, UpstreamError
from iop.forms import field_text
from iop.keys import make_key
from iop.testing.edge import script
from tests.edge.models.conftest import played, started
from tests.edge.models.loopback import Loopback, raised

MESSAGES = [{"role": "user", "content": "hi"}]

_tried = partial(raised, openai.APIError)


def chunk(text, finish=None):
    return events.output(text, raw=json.dumps({
        "id": "up", "object": "chat.completion.chunk", "created": 1, "model": "backend",
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}).encode())


class World(Loopback):
    """`client` is the official one."""

    def __init__(self):
        super().__init__()
        self.client = self.client_of(self.key)

    def client_of(self, key, **options):
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, timeout=10, **options)


@pytest.fixture
def world():
    made = World()
    yield made
    made.stop()


@pytest_twisted.ensureDeferred
async def test_it_lists_and_shows_models(world):
    listed = await deferToThread(lambda: [model.id for model in world.client.models.list()])
    assert listed == ["tiny", "small", "org/big", "echo"]
    shown = await deferToThread(world.client.models.retrieve, "org/big")
    assert shown.owned_by == "openai"


@pytest_twisted.ensureDeferred
async def test_it_streams_and_does_not(world):
    world.edge.scripts["tiny"] = script(chunk("hel"), chunk("lo", "stop"))

    def stream():
        with world.client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True) as told:
            return "".join(one.choices[0].delta.content for one in told)
    assert await deferToThread(stream) == "hello"
    world.edge.scripts["echo"] = script(events.output("whole"))
    answer = await deferToThread(lambda: world.client.chat.completions.create(model="echo", messages=MESSAGES))
    assert answer.choices[0].message.content == "whole"
    assert answer._request_id.startswith("req_")


@pytest_twisted.ensureDeferred
async def test_it_completes_embeds_hears_and_speaks(world):
    client = world.client
    world.edge.scripts["echo"] = script(events.output("a"), events.output("b"))
    answer = await deferToThread(lambda: client.completions.create(model="echo", prompt="x"))
    assert answer.choices[0].text == "ab"
    stream = await deferToThread(lambda: list(client.completions.create(model="echo", prompt="x", stream=True)))
    assert "".join(one.choices[0].text for one in stream) == "ab"
    world.edge.scripts["tiny"] = played(started(), events.output("", raw=b'{"data":[{"embedding":[1.5],"index":0}]}'))
    embedded = await deferToThread(lambda: client.embeddings.create(model="tiny", input="x", encoding_format="float"))
    assert embedded.data[0].embedding == [1.5]
    world.edge.scripts["tiny"] = played(started(), events.output("", raw=b'{"text":"heard"}'))
    heard = await deferToThread(lambda: client.audio.transcriptions.create(model="small", file=("a.wav", b"RIFF\r\n--x")))
    assert heard.text == "heard"
    assert field_text(world.edge.last.request.body, world.edge.last.request.content_type, "model") == "small"
    world.edge.scripts["tiny"] = played(started(content_type="audio/mpeg"), events.output("", raw=b"\xff\xfb"))
    spoken = await deferToThread(lambda: client.audio.speech.create(model="tiny", input="hi", voice="alloy"))
    assert (spoken.read(), spoken.response.headers["content-type"]) == (b"\xff\xfb", "audio/mpeg")
    world.edge.scripts["tiny"] = played(started(), events.output("", raw=b'{"created":1,"data":[{"b64_json":"eA=="}]}'))
    made = await deferToThread(lambda: client.images.generate(model="tiny", prompt="x"))
    assert made.data[0].b64_json == "eA=="


@pytest_twisted.ensureDeferred
async def test_its_errors_are_typed(world):
    wrong = world.client_of(make_key("api", "x")[1])
    error = await deferToThread(_tried, lambda: wrong.models.list())
    assert (type(error), error.code) == (openai.AuthenticationError, "invalid_api_key")
    error = await deferToThread(_tried, lambda: world.client.chat.completions.create(model="no", messages=MESSAGES))
    assert (type(error), error.code, error.param) == (openai.NotFoundError, "model_not_found", "model")
    assert error.request_id.startswith("req_")


@pytest_twisted.ensureDeferred
async def test_it_does_not_start_a_failed_run_again(world):
    world.edge.scripts["echo"] = script(error=ProgramFailed())
    error = await deferToThread(_tried, lambda: world.client.chat.completions.create(model="echo", messages=MESSAGES))
    assert (type(error), error.code) == (openai.InternalServerError, "program_failed")
    assert len(world.edge.runs_by_id) == 1


@pytest_twisted.ensureDeferred
async def test_a_failure_in_its_stream_is_an_error(world):
    def play(run):
        script(chunk("a"), error=UpstreamError("The stream was cut."))(run)
    world.edge.scripts["tiny"] = play
    error = await deferToThread(_tried, lambda: list(
        world.client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)))
    assert (error.code, error.message) == ("upstream_error", "The stream was cut.")


@pytest_twisted.ensureDeferred
async def test_closing_its_stream_stops_the_run(world):
    stopped = Deferred()

    def play(run):
        run.start()
        run.emit(chunk("a"))
        run.end = lambda kind, outcome: stopped.callback(run)
    world.edge.scripts["tiny"] = play

    def read_one():
        stream = world.client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
        first = next(iter(stream))
        stream.close()
        return first
    first = await deferToThread(read_one)
    run = await stopped.addTimeout(10, reactor)
    assert first.choices[0].delta.content == "a"
    assert run.cancels[0][1] == "client disconnected"


@pytest_twisted.ensureDeferred
async def test_a_refused_upload_hears_why(world):
    """The answer must not be lost in a reset, though most of the body was never read."""
    def upload():
        with socket.create_connection(world.address, timeout=10) as client:
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30000000\r\n\r\n")
            try:
                for _ in range(100):
                    client.sendall(b"x" * 10_000)
            except OSError:
                pass
            return client.makefile("rb").readline()
    assert await deferToThread(upload) == b"HTTP/1.1 401 Unauthorized\r\n"


@pytest_twisted.ensureDeferred
async def test_a_scrape_is_rendered_off_the_reactors_thread(world):
    def scrape():
        with socket.create_connection(world.address, timeout=10) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nx-api-key: %b\r\nConnection: close\r\n\r\n"
                           % world.key.encode())
            return client.makefile("rb").read()
    assert b"iop_nodes_up 1.0" in await deferToThread(scrape)
