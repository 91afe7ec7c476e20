"""The Responses API before a real llama.cpp, which has it itself, asked by the official OpenAI client through `iop up`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from tests.e2e.up import Up, eventually
from tests.real.llama import LlamaServer

pytestmark = pytest.mark.real
HELLO = "Hello from a real llama.cpp server, driven by IOP on your own machine."


class World:
    def __init__(self, up: Up, loop: LlamaServer) -> None:
        self.loop = loop
        self.responses = openai.OpenAI(base_url=f"{up.ready['http']}/v1", api_key=up.ready["api_key"], timeout=60,
                                       max_retries=0).responses

    def freed(self) -> None:
        eventually(lambda: not self.loop.busy_slots(), "the slot is free", 5)


@pytest.fixture(scope="module")
def world(llama_server: Callable[..., LlamaServer], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    hello, loop = llama_server("hello"), llama_server("loop")
    up = Up(tmp_path_factory.mktemp("up") / "state", "--openai", f"hello={hello.api}", "--openai", f"loop={loop.api}")
    yield World(up.wait_ready(), loop)
    assert up.stop() == 0, up.words()


def text(events: list[Any]) -> str:
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


def test_its_own_events_come_with_our_id_and_numbers(world: World) -> None:
    told = list(world.responses.create(model="hello", input="hi", stream=True))
    assert [event.sequence_number for event in told] == list(range(len(told)))
    assert text(told) == told[-1].response.output_text == HELLO
    assert {event.response.id for event in told if hasattr(event, "response")} == {told[0].response.id}
    again = list(world.responses.retrieve(told[0].response.id, stream=True, starting_after=8))
    assert [event.model_dump() for event in again] == [event.model_dump() for event in told[9:]]


def test_an_answer_in_one_piece_is_found_and_continued(world: World) -> None:
    first = world.responses.create(model="hello", input="hi", instructions="Be brief.")
    assert first.output_text == HELLO and first.usage is not None and first.usage.output_tokens > 10
    assert world.responses.retrieve(first.id).output == first.output
    second = world.responses.create(model="hello", input="go on", previous_response_id=first.id)
    assert second.usage is not None and second.usage.input_tokens > first.usage.input_tokens + len(HELLO), "it saw both"


def test_background_work_goes_on_alone_until_it_is_cancelled(world: World) -> None:
    made = world.responses.create(model="loop", input="hi", background=True)
    eventually(lambda: world.loop.busy_slots() == 1, "it is at work")
    seen = []
    with world.responses.retrieve(made.id, stream=True) as stream:
        for event in stream:
            seen.append(event)
            if len(seen) == 20:
                break
    assert world.loop.busy_slots() == 1 and world.responses.retrieve(made.id).status == "in_progress", "leaving stops nothing"
    world.responses.cancel(made.id)
    world.freed()
    eventually(lambda: world.responses.retrieve(made.id).status == "cancelled", "it is told as cancelled")
    rest = list(world.responses.retrieve(made.id, stream=True, starting_after=seen[-1].sequence_number))
    assert rest[0].sequence_number == 20 and rest[-1].response.status == "cancelled"
    assert text(seen + rest).startswith("tick1 tick2 tick3")


def test_leaving_frees_the_slot_streaming_or_not(world: World) -> None:
    with world.responses.create(model="loop", input="hi", stream=True) as stream:
        next(iter(stream))
        assert world.loop.busy_slots() == 1
    world.freed()

    def give_up() -> None:
        with pytest.raises(openai.APITimeoutError):
            world.responses.create(model="loop", input="hi", timeout=2)
    waiting = threading.Thread(target=give_up)
    waiting.start()
    eventually(lambda: world.loop.busy_slots() == 1, "it is at work")
    waiting.join(10)
    world.freed()
