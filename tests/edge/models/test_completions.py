"""The older completions API."""

import json

import pytest

from iop import events
from iop.errors import UpstreamError
from iop.proto.run_pb2 import CHANNEL_REASONING
from iop.testing.edge import script
from tests.edge.models.conftest import chat_chunk, completed, played, started, tool_chunk

PATH = "/v1/completions"
ASK = {"model": "tiny", "prompt": "Once"}
STREAM = {**ASK, "stream": True, "stream_options": {"include_usage": True}}
DONE = b"data: [DONE]\n\n"


def chunks(body):
    assert body.endswith(DONE)
    return [json.loads(line[6:]) for line in body[:-len(DONE)].split(b"\n") if line]


def test_a_backends_own_completions_pass_byte_for_byte(world):
    raw = b'{"object":"text_completion", "choices":[{"text":"a","index":0}],  "new":1.50}'
    usage = events.output("", raw=b'{"object":"text_completion","choices":[],"usage":{}}')
    usage.usage.prompt_tokens = 1
    world.edge.scripts["tiny"] = played(started(), events.output("a", raw=raw), usage)
    plain = world.call("POST", PATH, {**ASK, "stream": True}).body
    assert plain == b"data: " + raw + b"\n\n" + DONE
    assert chunks(world.call("POST", PATH, STREAM).body)[-1]["choices"] == []
    world.edge.scripts["tiny"] = played(started(), events.output("a", raw=raw))
    assert world.call("POST", PATH, ASK).body == raw
    assert world.edge.last.request.api == "completions"


def test_a_chat_is_told_as_a_completion(world):
    world.edge.scripts["tiny"] = played(
        started("chat/completions"), chat_chunk(role="assistant", content=""), chat_chunk(reasoning="hm"),
        chat_chunk(content="hel"), chat_chunk("length", content="lo"),
        outcome=completed("length", prompt_tokens=3, completion_tokens=2, total_tokens=5))
    *told, last, counted = chunks(world.call("POST", PATH, STREAM).body)
    assert "".join(one["choices"][0]["text"] for one in told) == "hello"
    assert (last["choices"][0]["text"], last["choices"][0]["finish_reason"]) == ("", "length")
    assert (counted["choices"], counted["usage"]["total_tokens"]) == ([], 5)
    assert {one["object"] for one in told} == {"text_completion"}
    answer = world.call("POST", PATH, ASK).json
    assert answer["choices"] == [{"index": 0, "text": "hello", "logprobs": None, "finish_reason": "length"}]
    assert answer["usage"]["prompt_tokens"] == 3


def test_what_this_api_does_not_know_is_left_out(world):
    world.edge.scripts["tiny"] = played(started("chat/completions"), tool_chunk(index=0, id="a", function={"name": "f"}),
                                        chat_chunk("tool_calls", content="x"))
    assert world.call("POST", PATH, ASK).json["choices"][0]["finish_reason"] == "stop"


def test_a_program_completes_too(world):
    world.edge.scripts["echo"] = script(events.output("hm", CHANNEL_REASONING), events.output("a"), events.output("b"))
    assert world.call("POST", PATH, {**ASK, "model": "echo"}).json["choices"][0]["text"] == "ab"


@pytest.mark.parametrize("body", [ASK, STREAM])
def test_a_failure_is_never_dressed_as_an_end(world, body):
    world.edge.scripts["tiny"] = script(events.output("a"), error=UpstreamError("cut"))
    answer = world.call("POST", PATH, body)
    assert DONE not in answer.body
    assert b'"finish_reason":"' not in answer.body
    assert b'"code":"upstream_error"' in answer.body


def test_heartbeats_can_be_empty_pieces(make_world):
    world = make_world(heartbeat="chunks")
    wire = world.asking(PATH, {**ASK, "stream": True})
    world.clock.advance(10.1)
    assert json.loads(wire.streamed().split(b"\n")[0][6:])["choices"][0]["text"] == ""
