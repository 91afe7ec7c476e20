"""The official client of Ollama against the Ollama face, over loopback."""

from functools import partial

import ollama
import pytest
import pytest_twisted
from twisted.internet.threads import deferToThread

from iop import events
from iop.errors import ProgramFailed
from iop.testing.edge import script
from tests.edge.models.conftest import chat_chunk, completed, played, started, tool_chunk
from tests.edge.models.loopback import Loopback, raised

MESSAGES = [{"role": "user", "content": "hi"}]

_tried = partial(raised, ollama.ResponseError)


class World(Loopback):
    """`client` is the official one."""

    def __init__(self):
        super().__init__()
        self.client = ollama.Client(self.url, timeout=10, headers={"Authorization": f"Bearer {self.key}"})


@pytest.fixture
def world():
    made = World()
    yield made
    made.stop()


@pytest_twisted.ensureDeferred
async def test_it_lists_shows_and_sees_models(world):
    target = world.edge.node("n1").targets[0]
    target.warm, target.context_tokens = True, 4096
    listed = await deferToThread(world.client.list)
    assert [model.model for model in listed.models][:2] == ["tiny:latest", "small:latest"]
    shown = await deferToThread(world.client.show, "tiny:latest")
    assert shown.modelinfo["openai.context_length"] == 4096
    running = await deferToThread(world.client.ps)
    assert [(model.model, model.context_length) for model in running.models][0] == ("tiny:latest", 4096)


@pytest_twisted.ensureDeferred
async def test_it_chats_streaming_and_not(world):
    world.edge.scripts["tiny"] = played(
        started("chat/completions"), chat_chunk(reasoning="hm"), chat_chunk(content="hel"),
        chat_chunk("length", content="lo"), outcome=completed("length", prompt_tokens=3, completion_tokens=2))
    told = await deferToThread(lambda: list(world.client.chat("tiny:latest", MESSAGES, stream=True)))
    assert "".join(part.message.content for part in told) == "hello"
    assert told[0].message.thinking == "hm"
    assert (told[-1].done, told[-1].done_reason, told[-1].eval_count) == (True, "length", 2)
    whole = await deferToThread(world.client.chat, "tiny", MESSAGES)
    assert (whole.message.content, whole.message.thinking, whole.prompt_eval_count) == ("hello", "hm", 3)
    assert whole.total_duration >= 0


@pytest_twisted.ensureDeferred
async def test_it_reads_tool_calls(world):
    world.edge.scripts["tiny"] = played(started("chat/completions"), tool_chunk(
        index=0, id="c", function={"name": "look", "arguments": '{"at":[1]}'}))
    streamed = await deferToThread(lambda: list(world.client.chat("tiny", MESSAGES, stream=True)))
    for last in (streamed[-1], await deferToThread(world.client.chat, "tiny", MESSAGES)):
        call = last.message.tool_calls[0].function
        assert (call.name, call.arguments) == ("look", {"at": [1]})


@pytest_twisted.ensureDeferred
async def test_it_completes_prompts_and_embeds(world):
    world.edge.scripts["echo"] = script(events.output("a"), events.output("b"))
    answer = await deferToThread(world.client.generate, "echo", "x")
    assert (answer.response, answer.done) == ("ab", True)
    told = await deferToThread(lambda: list(world.client.generate("echo", "x", stream=True)))
    assert "".join(part.response for part in told) == "ab"
    vectors = events.output("", raw=b'{"data":[{"embedding":[1.5],"index":0}]}')
    world.edge.scripts["tiny"] = played(started("embeddings"), vectors)
    assert (await deferToThread(world.client.embed, "tiny", "x")).embeddings == [[1.5]]
    assert (await deferToThread(world.client.embeddings, "tiny", "x")).embedding == [1.5]


@pytest_twisted.ensureDeferred
async def test_its_errors_have_their_text_and_status(world):
    error = await deferToThread(_tried, lambda: world.client.chat("no", MESSAGES))
    assert (error.status_code, "no" in error.error) == (404, True)
    error = await deferToThread(_tried, lambda: world.client.pull("x"))
    assert (error.status_code, "nodes" in error.error) == (404, True)
    world.edge.scripts["echo"] = script(events.output("a"), error=ProgramFailed("It ended with exit code 3."))
    error = await deferToThread(_tried, lambda: list(world.client.chat("echo", MESSAGES, stream=True)))
    assert error.error == "It ended with exit code 3."
