"""The Ollama face, byte by byte over a memory wire."""

import json

import pytest

from iop import events
from iop.errors import ProgramFailed, QueueFull, UpstreamError
from iop.proto.run_pb2 import CHANNEL_REASONING
from iop.testing.edge import script
from tests.edge.models.conftest import chat_chunk, completed, played, started, tool_chunk

CHAT, GENERATE = "/api/chat", "/api/generate"
ASK = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}


def lines(body):
    assert body.endswith(b"\n")
    return [json.loads(line) for line in body[:-1].split(b"\n")]


# --- names

def test_the_models_are_listed_with_tags_from_memory(world):
    found = world.call("GET", "/api/tags").json["models"]
    assert [entry["name"] for entry in found] == ["tiny:latest", "small:latest", "org/big:latest", "echo:latest"]
    assert found[0]["model"] == "tiny:latest"
    assert len(found[0]["digest"]) == 64
    assert found[0]["details"]["family"] == "openai"


@pytest.mark.parametrize("name", ["tiny", "tiny:latest", "openai/tiny", "openai/tiny:latest"])
def test_a_model_is_known_with_and_without_its_tag(world, name):
    world.edge.scripts["tiny"] = played(started("chat/completions"), chat_chunk(content="a"))
    assert world.call("POST", "/api/show", {"model": name}).status == 200
    answer = world.call("POST", CHAT, {**ASK, "model": name, "stream": False})
    assert (answer.status, answer.json["model"]) == (200, name)


def test_a_model_is_shown_with_its_context_length(world):
    world.edge.node("n1").targets[0].context_tokens = 4096
    shown = world.call("POST", "/api/show", {"name": "tiny"}).json
    assert shown["model_info"]["openai.context_length"] == 4096
    assert "completion" in shown["capabilities"]


def test_only_what_stands_in_memory_is_told_as_running(world):
    assert world.call("GET", "/api/ps").json == {"models": []}
    world.edge.node("n1").targets[0].warm = True
    assert [one["name"] for one in world.call("GET", "/api/ps").json["models"]] == ["tiny:latest", "small:latest"]


def test_its_probes_are_answered_without_a_key(world):
    wire = world.wire()
    wire.key = ""
    assert wire.call("GET", "/").body == b"Ollama is running"
    assert wire.call("GET", "/api/version").json["version"].count(".") == 2
    wire.ask("HEAD", "/")
    assert wire.received.startswith(b"HTTP/1.1 200 ")
    assert wire.received.endswith(b"\r\n\r\n")


# --- errors

def test_an_error_is_a_text(world):
    for answer, status in ((world.call("GET", "/api/tags", key="wrong"), 401), (world.call("GET", "/api/nothing"), 404),
                           (world.call("POST", CHAT, {**ASK, "model": "no"}), 404), (world.call("POST", CHAT, b"{"), 400),
                           (world.call("POST", CHAT, {"model": "tiny", "messages": "x"}), 400),
                           (world.call("POST", "/api/show", {}), 400)):
        assert answer.status == status
        assert isinstance(answer.json["error"], str)


def test_a_full_queue_is_503_here(world):
    world.edge.refusal = QueueFull()
    answer = world.call("POST", CHAT, ASK)
    assert (answer.status, list(answer.json)) == (503, ["error"])
    assert int(answer.headers["retry-after"]) > 0


def test_a_run_that_fails_before_its_output_has_its_own_status(world):
    world.edge.scripts["tiny"] = script(error=UpstreamError("No such thing.", status=400, body=b'{"error":"bad options"}'))
    for stream in (True, False):
        answer = world.call("POST", CHAT, {**ASK, "stream": stream})
        assert (answer.status, answer.json) == (400, {"error": "No such thing."})


def test_a_failure_after_output_is_one_line_and_the_end(world):
    world.edge.scripts["echo"] = script(events.output("a"), error=ProgramFailed("It ended with exit code 3."))
    told = lines(world.asking(CHAT, {**ASK, "model": "echo"}).streamed())
    assert told[0]["message"]["content"] == "a"
    assert told[1:] == [{"error": "It ended with exit code 3."}]


@pytest.mark.parametrize(("method", "path"), [
    ("POST", "/api/pull"), ("POST", "/api/push"), ("POST", "/api/create"), ("POST", "/api/copy"), ("DELETE", "/api/delete"),
    ("POST", "/api/blobs/sha256:1")])
def test_models_are_not_managed_here(world, method, path):
    answer = world.call(method, path, {"model": "x"})
    assert answer.status == 404
    assert "nodes" in answer.json["error"]


# --- what passes

def native(line):
    return events.output("", raw=json.dumps(line).encode().replace(b", ", b" ,  "))


def test_an_ollamas_own_lines_pass_byte_for_byte(world):
    first, last = native({"model": "m", "message": {"content": "a"}, "done": False}), native({"done": True, "new": [1.5]})
    world.edge.scripts["tiny"] = played(started(), first, last)
    wire = world.asking(CHAT, ASK)
    head = wire.received.partition(b"\r\n\r\n")[0].lower()
    assert b"content-type: application/x-ndjson" in head
    assert b"x-iop-run-id: " in head
    assert wire.streamed() == first.raw + b"\n" + last.raw + b"\n"
    world.edge.scripts["tiny"] = played(started(), last)
    assert world.call("POST", GENERATE, {"model": "tiny", "prompt": "x", "stream": False}).body == last.raw


def test_the_body_travels_whole_in_its_own_api(world):
    body = json.dumps({**ASK, "options": {"num_ctx": 8192}, "keep_alive": "5m", "think": True}, indent=1).encode()
    world.asking(CHAT, body)
    assert (world.edge.last.request.api, world.edge.last.request.body) == ("api/chat", body)
    assert world.edge.last.record.face == "ollama"


# --- what is told

def test_a_chat_backends_chunks_are_told_as_lines(world):
    world.edge.scripts["tiny"] = played(
        started("chat/completions"), chat_chunk(role="assistant", content=""), chat_chunk(reasoning_content="hm"),
        chat_chunk(content="hel"), chat_chunk("length", content="lo"),
        outcome=completed("length", prompt_tokens=3, completion_tokens=2, total_tokens=5))
    *told, last = lines(world.asking(CHAT, ASK).streamed())
    assert [one["message"] for one in told] == [
        {"role": "assistant", "content": "", "thinking": "hm"}, {"role": "assistant", "content": "hel"},
        {"role": "assistant", "content": "lo"}]
    assert all(one["done"] is False and one["model"] == "tiny" and one["created_at"].endswith("Z") for one in told)
    assert (last["done"], last["done_reason"], last["prompt_eval_count"], last["eval_count"]) == (True, "length", 3, 2)
    for name in ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration"):
        assert isinstance(last[name], int) and last[name] >= 0
    assert last["total_duration"] >= last["eval_duration"]


def test_tool_calls_are_told_whole_with_their_arguments_as_an_object(world):
    world.edge.scripts["tiny"] = played(
        started("chat/completions"), tool_chunk(index=0, id="c1", function={"name": "look", "arguments": ""}),
        tool_chunk(index=0, function={"arguments": '{"at"'}),
        tool_chunk("tool_calls", index=0, function={"arguments": ":1}"}))
    for stream in (True, False):
        answer = world.call("POST", CHAT, {**ASK, "stream": stream}).body
        last = lines(answer)[-1] if stream else json.loads(answer)
        assert last["message"]["tool_calls"] == [
            {"id": "c1", "function": {"index": 0, "name": "look", "arguments": {"at": 1}}}]
        assert last["done_reason"] == "stop"


def test_a_program_answers_a_prompt_in_one_piece(world):
    world.edge.scripts["echo"] = script(events.output("hm", CHANNEL_REASONING), events.output("a"), events.output("b"))
    answer = world.call("POST", GENERATE, {"model": "echo", "prompt": "x", "stream": False}).json
    assert (answer["response"], answer["thinking"], answer["done"], answer["done_reason"]) == ("ab", "hm", True, "stop")
    assert "message" not in answer


def test_a_line_that_says_nothing_keeps_the_connection(world):
    wire = world.asking(CHAT, ASK)
    world.clock.advance(10.1)
    told = lines(wire.streamed())
    assert [(one["message"]["content"], one["done"]) for one in told] == [("", False)]
    for _ in range(16):
        world.clock.advance(1)
        world.site.sweep()
    assert len(lines(wire.streamed())) == 1


def test_a_request_to_load_a_model_is_answered_at_once(world):
    for path, body in ((CHAT, {"model": "tiny", "messages": []}), (GENERATE, {"model": "tiny", "keep_alive": 0})):
        answer = world.call("POST", path, body).json
        assert (answer["done"], answer["done_reason"]) == (True, "load")
    assert not world.edge.runs_by_id


def test_a_client_that_leaves_stops_its_run(world):
    wire = world.asking(CHAT, ASK)
    wire.leave()
    assert [reason for _, reason in world.edge.last.cancels] == ["client disconnected"]


# --- embeddings

OPENAI_VECTORS = b'{"object":"list","data":[{"index":1,"embedding":[2.50]},{"index":0,"embedding":[1.5,0]}]}'
OLLAMA_VECTORS = b'{"model":"m","embeddings":[[1.5, 0],[2.50]],"total_duration":7}'


@pytest.mark.parametrize(("api", "raw"), [("embeddings", OPENAI_VECTORS), (None, OLLAMA_VECTORS)])
def test_embeddings_come_from_either_kind_of_backend(world, api, raw):
    world.edge.scripts["tiny"] = played(started(api), events.output("", raw=raw), outcome=completed(prompt_tokens=4))
    answer = world.call("POST", "/api/embed", {"model": "tiny", "input": ["a", "b"]})
    assert answer.json["embeddings"] == [[1.5, 0], [2.5]]
    if api is None:
        assert answer.body == raw
    else:
        assert answer.json["prompt_eval_count"] == 4


def test_the_older_embeddings_are_asked_and_told_in_their_own_way(world):
    world.edge.scripts["tiny"] = played(started(), events.output("", raw=OLLAMA_VECTORS))
    answer = world.call("POST", "/api/embeddings", {"model": "tiny", "prompt": "a", "options": {"x": 1}})
    assert answer.json == {"embedding": [1.5, 0]}
    assert json.loads(world.edge.last.request.body) == {"model": "tiny", "input": "a", "options": {"x": 1}}
    assert world.edge.last.request.api == "api/embed"


def test_what_does_not_embed_is_a_bad_request(world):
    world.edge.scripts["tiny"] = played(started("embeddings"), events.output("", raw=b"[]"))
    assert world.call("POST", "/api/embed", {"model": "tiny", "input": "a"}).status == 400
    assert world.call("POST", "/api/embed", {"model": "echo", "input": "a"}).status == 400
