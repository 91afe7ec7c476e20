"""Whatever is sent to a model API: a typed refusal in its dialect, or an answer; never a fault, never a hanging run."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock

from iop import events
from iop.config import HttpListen
from iop.edge.routes import make_table
from iop.errors import UpstreamError
from iop.metrics import Metrics
from iop.proto.run_pb2 import CHANNEL_REASONING
from iop.testing.edge import FakeEdge
from iop.web.errors import ANTHROPIC, MANAGEMENT, OLLAMA
from tests.edge.models.conftest import World, chat_chunk, played, started, tool_chunk

_EDGE = FakeEdge()
ROUTES = [route for route in make_table(_EDGE, HttpListen(), Metrics(_EDGE), Clock()).routes
          if route.dialect != MANAGEMENT and route.method == "POST" and route.body is not None]
NAMES = sorted({field.encode_name for route in ROUTES for field in msgspec.structs.fields(route.body)} - {"model"})

values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.floats(allow_nan=False),
                      lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
                      max_leaves=9)
words = st.sampled_from(["role", "content", "type", "text", "input", "id", "name", "arguments", "output", "tool_calls"])
kinds = st.sampled_from(["user", "system", "message", "function_call", "text", "tool"])
items = st.dictionaries(words, kinds | values, max_size=5)
bodies = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=9), values | st.lists(items, max_size=4), max_size=6)
turns = st.lists(st.sampled_from([
    chat_chunk(content="a"), chat_chunk("stop"), chat_chunk(reasoning="b"), tool_chunk(index=0, function={"name": "f"}),
    tool_chunk(id="x", function={"arguments": {"y": 1}}), events.output("plain"), events.output("hm", CHANNEL_REASONING),
    events.output("", raw=b'{"data":[]}'), events.output("", raw=b'{"choices":7}'), events.output("", raw=b"[[["),
]), max_size=5)


def is_an_error(answer, dialect):
    """Whether its body is one of the dialect."""
    error = answer.json["error"]
    if dialect == OLLAMA:
        return isinstance(error, str)
    if dialect == ANTHROPIC:
        return answer.json["type"] == "error" and isinstance(error["type"], str) and isinstance(error["message"], str)
    return all(isinstance(error[name], str) for name in ("message", "type")) and {"param", "code"} <= error.keys()


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(ROUTES), st.data())
def test_any_body_is_answered_or_refused_in_its_dialect(route, data):
    world = World()
    begun = started(data.draw(st.sampled_from([None, "chat/completions", "embeddings"])))
    error = UpstreamError("no", status=400, body=b'{"error":[]}') if data.draw(st.booleans()) else None
    world.edge.scripts["tiny"] = played(begun, *data.draw(turns), ending="failed" if error else "completed",
                                        outcome=events.outcome_of(error) if error else None)
    body = {"model": "tiny", **data.draw(bodies)}
    path = route.path.replace("{response_id}", "resp_x")
    wire = world.wire()
    wire.ask("POST", path, json.dumps(body).encode())
    answer = wire.answer()
    assert answer.status < 500, answer.body
    if answer.status >= 400:
        assert is_an_error(answer, route.dialect), answer.body
    assert all(run.record.ended or run.cancels or answer.status == 200 for run in world.edge.runs_by_id.values())


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
@pytest.mark.parametrize("body", [b"", b"\xff", b"{", b"[]", b"null", b'"x"', b"{}", b'{"model":""}', b'{"model":7}',
                                  b'{"model":"' + b"x" * 400 + b'"}', b'{"model":"tiny","model":"tiny"}', b"[" * 5000])
def test_what_is_no_request_is_refused_in_its_dialect(world, route, body):
    answer = world.call("POST", route.path.replace("{response_id}", "resp_x"), body)
    assert 400 <= answer.status < 500
    assert is_an_error(answer, route.dialect)
    assert not world.edge.runs_by_id
