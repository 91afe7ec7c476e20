"""The Responses API over a memory wire: made, left, fetched again, resumed, cancelled, continued, deleted."""

import json

import pytest

from iop import events
from iop.errors import ProgramFailed, QueueFull
from iop.proto import run_pb2
from iop.proto.run_pb2 import Gap, RuntimeEvent
from iop.testing.edge import script
from tests.edge.models.conftest import World

PATH = "/v1/responses"
ASK = {"model": "tiny", "input": "hi"}
STREAM = {**ASK, "stream": True}
BACKGROUND = {**ASK, "background": True}


def chunk(text, finish=None):
    raw = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}
    return events.output(text, raw=json.dumps(raw).encode())


ANSWER = script(chunk("hel"), chunk("lo", "stop"))


class ResponsesWorld(World):
    def __init__(self):
        super().__init__()
        self.key = self.models

    def retrieving(self, path):
        """An answer that is still to come."""
        wire = self.wire()
        wire.ask("GET", path)
        return wire

    def made(self, **more):
        """A finished response, as its client has it."""
        self.edge.scripts["tiny"] = ANSWER
        return self.call("POST", PATH, ASK | more).json


@pytest.fixture
def world():
    return ResponsesWorld()


def told(body):
    return [json.loads(line[6:]) for line in body.decode().split("\n") if line.startswith("data: ")]


def kinds(body):
    return [event["type"].removeprefix("response.") for event in told(body)]


# --- made

def test_an_answer_in_one_piece(world):
    world.edge.scripts["tiny"] = ANSWER
    answer = world.call("POST", PATH, {**ASK, "metadata": {"a": "b"}})
    run_id = world.edge.last.record.run_id
    assert (answer.status, answer.headers["x-iop-run-id"], answer.json["id"]) == (200, run_id, f"resp_{run_id}")
    assert answer.json["output"][0]["content"][0]["text"] == "hello" and answer.json["metadata"] == {"a": "b"}
    assert (answer.json["status"], answer.json["model"]) == ("completed", "tiny")


def test_a_stream_begins_with_the_first_output_and_ends_as_completed(world):
    wire = world.asking(PATH, STREAM)
    run = world.edge.last
    run.start()
    assert not wire.received, "no status before there is something to tell"
    run.emit(chunk("hel"))
    assert kinds(wire.streamed())[:2] == ["created", "in_progress"]
    run.emit(chunk("lo", "stop"))
    run.end("completed")
    assert kinds(wire.streamed())[-1] == "completed"


def test_a_stream_that_is_quiet_shows_that_it_lives(world):
    """In events: codex does not count comments, and gives up after five minutes."""
    wire = world.asking(PATH, STREAM)
    world.clock.advance(11)
    assert kinds(wire.streamed()) == ["created", "in_progress"]
    world.clock.pump([1] * 16)
    world.site.sweep()
    assert kinds(wire.streamed()) == ["keepalive"]
    run = world.edge.last
    run.start()
    run.emit(chunk("a", "stop"))
    run.end("completed")
    assert kinds(wire.streamed())[0] == "output_item.added"


def test_the_backend_is_always_asked_for_a_stream(world):
    body = b'{"model": "tiny",  "input": "hi", "top_k": 1.50, "stream": true}'
    world.asking(PATH, body)
    assert world.edge.last.request.body == body, "the body travels as it came"
    world.asking(PATH, body.replace(b"true", b"false"))
    assert json.loads(world.edge.last.request.body)["stream"] is True and b"1.50" in world.edge.last.request.body
    assert world.edge.last.request.api == "responses"


def test_runs_of_one_conversation_belong_together(world):
    for body in ({**ASK, "prompt_cache_key": "k"}, {**ASK, "prompt_cache_key": "k", "input": "other"}, {**ASK, "input": "x"}):
        world.asking(PATH, body)
    one, same, other = [run.request.affinity for run in world.edge.runs_by_id.values()]
    assert one == same != other and one and other


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": "tiny", "input": 3}', b'{"input": "hi"}', b'{"model": 1}',
                                  b'{"model": "tiny", "input": "x", "stream": "y"}', b'{"model": "tiny", "model": "tiny"}',
                                  b'{"model": "tiny", "input": "x", "background": 1}', b'{"model": "tiny", "input": {}}',
                                  b'{"model": "tiny", "input": "x", "background": true, "store": false}',
                                  b'{"model": "tiny", "input": "x", "previous_response_id": 4}', b"\xff"])
def test_a_bad_body_is_an_invalid_request(world, body):
    answer = world.call("POST", PATH, body)
    assert (answer.status, answer.code, answer.json["error"]["type"]) == (400, "invalid_request", "invalid_request_error")
    assert not world.edge.runs_by_id


def test_what_fails_before_the_first_output_has_its_status(world):
    world.edge.refusal = QueueFull()
    for body in (STREAM, BACKGROUND):
        answer = world.call("POST", PATH, body)
        assert (answer.status, answer.code) == (429, "rate_limit_exceeded")
    world.edge.refusal = None
    assert world.call("POST", PATH, {**ASK, "model": "no"}).code == "model_not_found"
    world.edge.scripts["echo"] = script(error=ProgramFailed())
    assert world.call("POST", PATH, {**STREAM, "model": "echo"}, world.op).code == "program_failed"
    assert world.call("POST", PATH, {**ASK, "model": "echo"}).code == "permission_denied"


def test_a_client_that_leaves_stops_its_response(world):
    for body in (ASK, STREAM):
        wire = world.asking(PATH, body)
        wire.leave()
        assert world.edge.last.record.state == "cancelled"


# --- in the background

def test_a_background_response_is_answered_at_once_and_goes_on_alone(world):
    wire = world.asking(PATH, BACKGROUND)
    answer, run = wire.answer(), world.edge.last
    assert (answer.status, answer.json["status"], answer.json["background"]) == (200, "queued", True)
    wire.leave()
    assert not run.cancels and not run.request.HasField("detach_s")
    path = f"{PATH}/{answer.json['id']}"
    run.start()
    run.emit(chunk("hello"))
    shown = world.call("GET", path).json
    assert (shown["status"], shown["output"], shown["background"]) == ("in_progress", [], True)
    run.end("completed")
    assert world.call("GET", path).json["output"][0]["content"][0]["text"] == "hello"


def test_a_background_response_that_is_asked_for_twice_is_one(world):
    world.edge.scripts["tiny"] = ANSWER
    first, again = [world.call("POST", PATH, BACKGROUND, idempotency_key="k").json for _ in range(2)]
    assert first == again and again["output"][0]["content"][0]["text"] == "hello" and len(world.edge.runs_by_id) == 1


def test_a_background_stream_can_be_left_and_taken_up_again(world):
    wire = world.asking(PATH, {**BACKGROUND, "stream": True})
    run = world.edge.last
    run.start()
    run.emit(chunk("hel"))
    seen = told(wire.streamed())
    wire.leave()
    assert run.record.state == "running"
    run.emit(chunk("lo"))
    last = seen[-1]["sequence_number"]
    again = world.retrieving(f"{PATH}/resp_{run.record.run_id}?stream=true&starting_after={last}")
    run.emit(chunk("!", "stop"))
    run.end("completed")
    rest = told(again.streamed())
    everything = told(world.retrieving(f"{PATH}/{run.record.run_id}?stream=true").streamed())
    assert seen + rest == everything, "nothing is missing, nothing comes twice"
    assert [event["delta"] for event in everything if event["type"] == "response.output_text.delta"] == ["hel", "lo", "!"]


# --- fetched again

def test_it_is_found_by_its_id_and_by_the_runs(world):
    made = world.made()
    for name in (made["id"], made["id"].removeprefix("resp_")):
        assert world.call("GET", f"{PATH}/{name}").json == made


@pytest.mark.parametrize("name", ["resp_", "resp_x", "x", "resp_" + "0" * 32, "resp_resp_" + "0" * 32])
def test_what_is_not_there_is_not_found(world, name):
    for method, path in (("GET", name), ("DELETE", name), ("POST", name + "/cancel"), ("GET", name + "/input_items")):
        answer = world.call(method, f"{PATH}/{path}")
        assert (answer.status, answer.json["error"]["type"]) == (404, "invalid_request_error")


def test_what_is_anothers_is_told_like_what_is_not_there(world):
    name = world.made()["id"]
    for method, path in (("GET", name), ("DELETE", name), ("POST", name + "/cancel"), ("GET", name + "/input_items")):
        assert world.call(method, f"{PATH}/{path}", key=world.op).status == 404
    answer = world.call("POST", PATH, {**ASK, "previous_response_id": name}, world.op)
    assert (answer.status, answer.code, answer.json["error"]["param"]) == (
        400, "previous_response_not_found", "previous_response_id")
    assert world.call("GET", f"{PATH}/{name}").status == 200


def test_a_chat_is_no_response(world):
    world.edge.scripts["tiny"] = ANSWER
    world.call("POST", "/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]})
    assert world.call("GET", f"{PATH}/{world.edge.last.record.run_id}").status == 404


def test_what_was_not_to_be_stored_is_not_found(world):
    name = world.made(store=False)["id"]
    assert world.call("GET", f"{PATH}/{name}").status == 404
    assert world.call("POST", PATH, {**ASK, "previous_response_id": name}).code == "previous_response_not_found"
    assert world.call("POST", f"{PATH}/{name}/cancel").status == 200, "it can be stopped all the same"


def test_what_is_deleted_is_not_found_any_more(world):
    name = world.made()["id"]
    assert world.call("DELETE", f"{PATH}/{name}").json == {"id": name, "object": "response", "deleted": True}
    assert world.call("GET", f"{PATH}/{name}").status == world.call("DELETE", f"{PATH}/{name}").status == 404
    running = world.call("POST", PATH, {**BACKGROUND, "model": "org/big"}).json["id"]
    assert (world.call("DELETE", f"{PATH}/{running}").status, world.edge.last.record.state) == (409, "placed")


@pytest.mark.parametrize("after", [0, 2, 5, 8, 9, 400])
def test_a_finished_stream_is_told_again_from_any_place(world, after):
    name = world.made()["id"]
    everything = told(world.retrieving(f"{PATH}/{name}?stream=true").streamed())
    assert [event["sequence_number"] for event in everything] == list(range(10))
    wire = world.retrieving(f"{PATH}/{name}?stream=true&starting_after={after}")
    assert wire.received.startswith(b"HTTP/1.1 200") and wire.received.endswith(b"0\r\n\r\n")
    assert told(wire.streamed()) == everything[after + 1:]


@pytest.mark.parametrize("query", ["stream=maybe", "stream=true&starting_after=x", "starting_after=-1",
                                   "stream=true&stream=true"])
def test_a_bad_query_is_an_invalid_request(world, query):
    assert world.call("GET", f"{PATH}/{world.made()['id']}?{query}").code == "invalid_request"


def test_events_behind_a_loss_cannot_be_told_again(world):
    name = world.call("POST", PATH, BACKGROUND).json["id"]
    run = world.edge.last
    run.start()
    run.emit(RuntimeEvent(at_us=1, gap=Gap(first_seq=2, reason="lost")))
    run.emit(chunk("b"))
    run.end("completed")
    answer = world.call("GET", f"{PATH}/{name}?stream=true&starting_after=3")
    assert (answer.status, answer.code) == (409, "conflict")
    assert all(cursor.closed for cursor in run.cursors)
    shown = world.call("GET", f"{PATH}/{name}").json
    assert shown["status"] == "failed" and "lost" in shown["error"]["message"]


def test_leaving_a_stream_that_was_fetched_stops_nothing(world):
    name = world.call("POST", PATH, BACKGROUND).json["id"]
    run = world.edge.last
    run.start()
    wire = world.retrieving(f"{PATH}/{name}?stream=true")
    wire.leave()
    assert not run.cancels and run.cursors[-1].closed


def test_a_failed_one_tells_why(world):
    world.edge.scripts["echo"] = script(events.output("half"), error=ProgramFailed("It broke."))
    world.call("POST", PATH, {**ASK, "model": "echo"}, world.op)
    shown = world.call("GET", f"{PATH}/{world.edge.last.record.run_id}", key=world.op).json
    assert (shown["status"], shown["error"]["message"]) == ("failed", "It broke.")
    assert shown["output"][0]["status"] == "incomplete" and shown["output"][0]["content"][0]["text"] == "half"


def test_a_cancelled_one_is_told_as_such_however_often_it_is_cancelled(world):
    name = world.call("POST", PATH, BACKGROUND).json["id"]
    for _ in range(2):
        answer = world.call("POST", f"{PATH}/{name}/cancel")
        assert (answer.status, answer.json["status"], answer.json["error"]) == (200, "cancelled", None)
    assert world.edge.last.cancels[0][0].principal == "chatter"


# --- continued

def test_a_response_goes_on_from_an_earlier_one(world):
    first = world.made(instructions="Old.")
    second = world.made(input=[{"role": "user", "content": "more"}], previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    sent = json.loads(world.edge.last.request.body)
    assert [item.get("role") for item in sent["input"]] == ["user", "assistant", "user"] and "instructions" not in sent
    third = world.made(input="end", previous_response_id=second["id"])
    sent = json.loads(world.edge.last.request.body)["input"]
    texts = [item["content"] if isinstance(item["content"], str) else item["content"][0]["text"] for item in sent]
    assert texts == ["hi", "hello", "more", "hello", "end"]
    assert world.call("GET", f"{PATH}/{third['id']}").json == third


@pytest.mark.parametrize("ending", ["failed", "cancelled"])
def test_what_is_no_whole_answer_is_not_continued(world, ending):
    name = world.call("POST", PATH, BACKGROUND).json["id"]
    run = world.edge.last
    assert world.call("POST", PATH, {**ASK, "previous_response_id": name}).code == "previous_response_not_found"
    run.start()
    run.end(ending, run_pb2.Outcome(code=ending))
    assert world.call("POST", PATH, {**ASK, "previous_response_id": name}).code == "previous_response_not_found"
    assert len(world.edge.runs_by_id) == 1


def test_what_was_asked_can_be_listed(world):
    items = [{"type": "message", "role": "user", "content": str(number)} for number in range(5)]
    name = world.made(input=[*items, {"id": "own", "role": "user"}])["id"]
    page = world.call("GET", f"{PATH}/{name}/input_items?limit=2").json
    assert [item["id"][:3] for item in page["data"]] == ["own", "in_"] and page["has_more"] is True
    rest = world.call("GET", f"{PATH}/{name}/input_items?limit=100&after={page['last_id']}").json
    assert [item["content"] for item in rest["data"]] == ["3", "2", "1", "0"] and rest["has_more"] is False
    assert world.call("GET", f"{PATH}/{name}/input_items?order=asc").json["data"][0]["content"] == "0"
    assert world.call("GET", f"{PATH}/{name}/input_items?limit=0").code == "invalid_request"
    text = world.call("GET", f"{PATH}/{world.made()['id']}/input_items").json["data"]
    assert text[0]["content"] == [{"type": "input_text", "text": "hi"}]
