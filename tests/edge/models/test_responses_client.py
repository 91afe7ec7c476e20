"""The official OpenAI client against the Responses API, over loopback."""

import json
from functools import partial

import openai
import pytest
import pytest_twisted
from pydantic import BaseModel
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from iop import events
from iop.errors import ProgramFailed, UpstreamError
from iop.proto import run_pb2
from iop.testing.edge import script
from tests.edge.models.loopback import Loopback, raised

_tried = partial(raised, openai.APIError)


def chunk(finish=None, **delta):
    raw = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return events.output(delta.get("content") or "", raw=json.dumps(raw).encode())


def call(name, arguments):
    return [chunk(tool_calls=[{"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": ""}}]),
            *(chunk(tool_calls=[{"index": 0, "function": {"arguments": piece}}]) for piece in (arguments[:3], arguments[3:])),
            chunk("tool_calls")]


class World(Loopback):
    """`responses` is the official client's."""

    def __init__(self):
        super().__init__()
        self.responses = openai.OpenAI(base_url=f"{self.url}/v1", api_key=self.key, timeout=10).responses

    def create(self, **asked):
        return deferToThread(lambda: self.responses.create(model="tiny", **{"input": "hi"} | asked))


@pytest.fixture
def world():
    made = World()
    yield made
    made.stop()


@pytest_twisted.ensureDeferred
async def test_it_creates_shows_continues_and_deletes(world):
    world.edge.scripts["tiny"] = script(chunk(reasoning_content="Hm."), chunk(content="hel"), chunk("stop", content="lo"))
    first = await world.create()
    assert (first.output_text, first.status, [item.type for item in first.output]) == (
        "hello", "completed", ["reasoning", "message"])
    shown = await deferToThread(world.responses.retrieve, first.id)
    assert shown == first
    second = await world.create(input="more", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    listed = await deferToThread(lambda: [item.type for item in world.responses.input_items.list(second.id, order="asc")])
    assert listed == ["message", "reasoning", "message", "message"]
    await deferToThread(world.responses.delete, first.id)
    assert isinstance(await deferToThread(_tried, lambda: world.responses.retrieve(first.id)), openai.NotFoundError)


@pytest_twisted.ensureDeferred
async def test_its_own_accumulator_reads_the_stream(world):
    weather = {"type": "function", "name": "weather", "strict": True, "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}}
    warning = run_pb2.RuntimeEvent(at_us=1, status=run_pb2.Status(word="warning", detail="web_search was left out"))
    world.edge.scripts["tiny"] = script(warning, chunk(content="See: "), *call("weather", '{"city":"Oslo"}'))

    def gather():
        with world.responses.stream(model="tiny", input="hi", tools=[weather]) as told:
            kinds = [event.type for event in told]
            return kinds, told.get_final_response()
    kinds, final = await deferToThread(gather)
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed" and "response.x_iop" in kinds
    assert final.output_text == "See: " and final.output[1].parsed_arguments == {"city": "Oslo"}


@pytest_twisted.ensureDeferred
async def test_it_parses_what_it_asked_for(world):
    class Place(BaseModel):
        city: str
    world.edge.scripts["tiny"] = script(chunk(content='{"city":'), chunk("stop", content='"Oslo"}'))
    answer = await deferToThread(lambda: world.responses.parse(model="tiny", input="hi", text_format=Place))
    assert answer.output_parsed == Place(city="Oslo")


@pytest_twisted.ensureDeferred
async def test_background_work_is_polled_resumed_and_cancelled(world):
    made = await world.create(background=True)
    assert made.status == "queued"
    run = world.edge.last
    run.start()
    run.emit(chunk(content="hel"))
    run.emit(chunk(content="lo"))
    assert (await deferToThread(world.responses.retrieve, made.id)).status == "in_progress"
    run.emit(chunk("stop"))
    run.end("completed")
    everything = await deferToThread(lambda: list(world.responses.retrieve(made.id, stream=True)))
    rest = await deferToThread(lambda: list(world.responses.retrieve(made.id, stream=True, starting_after=4)))
    assert rest == everything[5:] and rest[0].sequence_number == 5 and rest[-1].response.output_text == "hello"
    again = await world.create(background=True)
    assert (await deferToThread(world.responses.cancel, again.id)).status == "cancelled"


@pytest_twisted.ensureDeferred
async def test_its_errors_are_typed(world):
    error = await deferToThread(_tried, lambda: world.responses.create(model="no", input="hi"))
    assert (type(error), error.code, error.param) == (openai.NotFoundError, "model_not_found", "model")
    error = await deferToThread(_tried, lambda: world.responses.create(
        model="tiny", input="x", previous_response_id="resp_x"))
    assert (type(error), error.code) == (openai.BadRequestError, "previous_response_not_found")
    world.edge.scripts["tiny"] = script(error=ProgramFailed())
    error = await deferToThread(_tried, lambda: world.responses.create(model="tiny", input="x"))
    assert (type(error), len(world.edge.runs_by_id)) == (openai.InternalServerError, 1), "what has begun is not begun again"


@pytest_twisted.ensureDeferred
async def test_a_failure_in_its_stream_is_an_event(world):
    world.edge.scripts["tiny"] = script(chunk(content="a"), error=UpstreamError("The stream was cut."))
    told = await deferToThread(lambda: list(world.responses.create(model="tiny", input="hi", stream=True)))
    assert told[-1].type == "response.failed" and told[-1].response.error.message == "The stream was cut."


@pytest_twisted.ensureDeferred
async def test_closing_its_stream_stops_the_run(world):
    stopped = Deferred()

    def play(run):
        run.start()
        run.emit(chunk(content="a"))
        run.end = lambda kind, outcome: stopped.callback(run)
    world.edge.scripts["tiny"] = play

    def read_one():
        stream = world.responses.create(model="tiny", input="hi", stream=True)
        first = next(iter(stream))
        stream.close()
        return first
    assert (await deferToThread(read_one)).type == "response.created"
    run = await stopped.addTimeout(10, reactor)
    assert run.cancels[0][1] == "client disconnected"
