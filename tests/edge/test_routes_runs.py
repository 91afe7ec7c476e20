"""The management API of runs, nodes, sessions and lifecycle events, over the fake edge."""

import json

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from iop import events
from iop.cli.client import parse_events
from iop.config import HttpListen
from iop.edge.routes import make_site
from iop.errors import HistoryUnavailable, NoSuchTarget, QueueFull
from iop.keys import SCOPES, KeyRing, make_key
from iop.metrics import Metrics
from iop.proto import node_pb2, run_pb2
from iop.records import SessionRecord
from iop.testing.edge import FakeEdge, script
from iop.testing.web import Wire

BODY = {"adapter": "openai", "target": "tiny", "input": {"prompt": "hi"}}


class World:
    def __init__(self):
        self.edge, self.clock = FakeEdge(), Clock()
        op, self.op = make_key("api", "op", list(SCOPES))
        client, self.client = make_key("api", "client", ["runs:read", "runs:write"])
        ring = KeyRing([op, client])
        self.site = make_site(self.edge, lambda: ring, HttpListen(), Metrics(self.edge), self.clock)

    def wire(self, key=None):
        return Wire(self.site, key or self.op)

    def call(self, method, path, body=None, key=None, **headers):
        return self.wire(key).call(method, path, body, **headers)

    def submitted(self, target="tiny", key=None):
        answer = self.call("POST", "/api/v1/runs", {**BODY, "target": target}, key)
        return answer.json["run_id"]


@pytest.fixture
def world():
    return World()


def ids(body):
    return [event.data["id"] for event in parse_events(iter(body.splitlines(keepends=True)))]


def test_without_an_adapter_a_run_goes_to_what_its_name_means(world):
    run = world.call("POST", "/api/v1/runs", {"target": "small", "input": {"prompt": "hi"}}).json["run_id"]
    told = world.call("GET", f"/api/v1/runs/{run}").json
    assert (told["adapter"], told["target"], told["position"]) == ("openai", "tiny", None)
    program = {"target": "echo", "input": {"prompt": "hi"}}
    assert world.call("POST", "/api/v1/runs", program).status == 202
    assert world.call("POST", "/api/v1/runs", program, world.client).status == 403
    assert world.call("POST", "/api/v1/runs", {**program, "target": "nothing"}).status == 404


# --- usage

def test_usage_is_told_by_what_was_asked_for_and_only_to_whom_it_concerns(world):
    world.submitted()
    one, = world.call("GET", "/api/v1/usage?by=key,model,node").json["usage"]
    assert (one["key"], one["model"], one["node"], one["runs"], one["total_tokens"]) == ("op", "openai/tiny", "n1", 1, 0)
    one, = world.call("GET", "/api/v1/usage?by=total&since=2026-12-01T00:00:00Z").json["usage"]
    assert "key" not in one and "model" not in one
    assert world.call("GET", "/api/v1/usage", key=world.client).json["usage"] == []
    assert world.call("GET", "/api/v1/usage?by=moon").status == 400


# --- submit

@pytest.mark.parametrize(("word", "meant"), [("safe", (True, True)), ("never", (True, False)), (None, (False, False))])
def test_what_is_said_of_a_retry_is_told_from_silence(world, word, meant):
    assert world.call("POST", "/api/v1/runs", {**BODY, "retry": word} if word else BODY).status == 202
    request = world.edge.last.request
    assert (request.HasField("retry_safe"), request.retry_safe) == meant


def test_a_run_is_accepted_with_its_source(world):
    answer = world.call("POST", "/api/v1/runs", {**BODY, "labels": {"room": "lab"}, "limits": {"run_s": 5}, "retry": "safe",
                                                 "session_id": "s1", "priority": 3}, x_request_id="client-id-0001")
    assert (answer.status, answer.json["state"]) == (202, "placed")
    request, record = world.edge.last.request, world.edge.last.record
    assert answer.headers["location"] == f"/api/v1/runs/{record.run_id}"
    assert (request.prompt, request.limits.run_s, dict(request.labels)) == ("hi", 5, {"room": "lab"})
    assert (request.retry_safe, request.session_id, request.priority) == (True, "s1", 3)
    assert (record.face, record.principal, record.request_id) == ("http", "op", "client-id-0001")
    assert answer.headers["x-request-id"] == "client-id-0001"


def test_messages_and_bodies_travel_as_json(world):
    messages = [{"role": "user", "content": "hé"}]
    world.call("POST", "/api/v1/runs", {**BODY, "input": {"messages": messages}})
    assert json.loads(world.edge.last.request.messages) == messages
    world.call("POST", "/api/v1/runs", {**BODY, "input": {"body": {"messages": messages, "top_k": 3}}})
    assert json.loads(world.edge.last.request.body) == {"messages": messages, "top_k": 3}
    assert world.edge.last.request.api == "chat/completions"


@pytest.mark.parametrize("body", [
    {}, [], "x", {**BODY, "input": {}}, {**BODY, "input": {"prompt": "a", "messages": []}}, {**BODY, "adapter": ""},
    {**BODY, "priority": "high"}, {**BODY, "limits": {"run_s": -1}}, {**BODY, "limits": {"hours": 1}},
    {**BODY, "retry": "maybe"}, {**BODY, "node_id": "n1"}, {**BODY, "principal": "root"}, {**BODY, "labels": {"a": 1}},
    *({**BODY, "limits": {"output_bytes": number}} for number in (2 ** 53 + 1, 2 ** 63, 2 ** 64, 2 ** 70)),
    b"", b"{", b'{"adapter":"a","adapter":"b"}', b'{"adapter": NaN}', b"[" * 5000, b"\xff", b'{"adapter":"\\ud800"}',
])
def test_a_bad_body_is_refused_and_starts_nothing(world, body):
    answer = world.call("POST", "/api/v1/runs", body)
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert not world.edge.runs_by_id


@pytest.mark.parametrize(("error", "status"), [(QueueFull(), 429), (NoSuchTarget(), 404), (HistoryUnavailable(), 503)])
def test_a_refusal_of_the_edge_has_its_status(world, error, status):
    world.edge.refusal = error
    answer = world.call("POST", "/api/v1/runs", BODY)
    assert (answer.status, answer.code) == (status, error.code)
    assert answer.json["error"]["hint"]
    assert (answer.headers["retry-after"] is not None) == error.retryable


def test_a_prompt_may_be_as_long_as_a_chat(world):
    prompt = "x" * 3_000_000
    assert world.call("POST", "/api/v1/runs", {**BODY, "input": {"prompt": prompt}}).status == 202
    assert world.edge.last.request.prompt == prompt


def test_a_program_needs_its_scope(world):
    body = {**BODY, "adapter": "cli", "target": "echo"}
    assert world.call("POST", "/api/v1/runs", body, world.client).status == 403
    assert world.call("POST", "/api/v1/runs", body).status == 202


def test_the_same_key_is_the_same_run(world):
    first = world.call("POST", "/api/v1/runs", BODY, idempotency_key="k1").json
    again = world.call("POST", "/api/v1/runs", BODY, idempotency_key="k1").json
    assert first["run_id"] == again["run_id"]
    assert world.call("POST", "/api/v1/runs", BODY, idempotency_key="x" * 256).status == 400


# --- look

def test_runs_are_listed_in_pages(world):
    made = [world.submitted() for _ in range(5)]
    page = world.call("GET", "/api/v1/runs?limit=2").json
    assert [run["run_id"] for run in page["runs"]] == made[:-3:-1]
    rest = world.call("GET", f"/api/v1/runs?limit=10&cursor={page['next']}").json
    assert len(rest["runs"]) == 3
    assert rest["next"] is None


@pytest.mark.parametrize(("query", "count"), [
    ("state=completed", 1), ("state=placed", 1), ("adapter=cli", 0), ("target=tiny&node=n1", 2), ("node=n2", 0),
    ("since=2020-01-01T00:00:00Z", 2), ("since=2999-01-01T00:00:00%2B02:00", 0)])
def test_runs_are_filtered(world, query, count):
    world.submitted()
    world.edge.scripts["tiny"] = script()
    world.submitted()
    assert len(world.call("GET", "/api/v1/runs?" + query).json["runs"]) == count


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "state=gone", "since=yesterday",
                                   "since=2020-01-01T00:00:00", "state=failed&state=queued", "x=%ff", "&".join("a=1" * 80)])
def test_a_bad_query_is_refused(world, query):
    assert world.call("GET", "/api/v1/runs?" + query).status == 400


def test_a_key_sees_only_its_own_runs(world):
    others, own = world.submitted(), world.submitted(key=world.client)
    assert [run["run_id"] for run in world.call("GET", "/api/v1/runs", key=world.client).json["runs"]] == [own]
    assert world.call("GET", f"/api/v1/runs/{own}", key=world.client).status == 200
    for path in ("", "/events"):
        answer = world.call("GET", f"/api/v1/runs/{others}{path}", key=world.client)
        assert (answer.status, answer.code) == (404, "no_such_run")
    assert world.call("POST", f"/api/v1/runs/{others}/cancel", key=world.client).status == 404
    assert not world.edge.runs_by_id[others].cancels
    assert len(world.call("GET", "/api/v1/runs").json["runs"]) == 2


@pytest.mark.parametrize("run_id", ["0" * 32, "nonsense", "../../etc", "%00", "1" * 5000])
def test_an_unknown_run_is_not_found(world, run_id):
    assert world.call("GET", f"/api/v1/runs/{run_id}").status == 404


# --- events

def test_events_come_in_pages(world):
    world.edge.scripts["tiny"] = script(*(events.output(f"{number}") for number in range(5)))
    path = f"/api/v1/runs/{world.submitted()}/events"
    first = world.call("GET", path + "?limit=3").json
    assert [event["id"] for event in first["events"]] == ["1.1", "1.2", "1.3"]
    assert (first["next"], first["ended"]) == ("1.3", False)
    rest = world.call("GET", path + "?after=1.3").json
    assert [event["type"] for event in rest["events"]] == ["output", "output", "output", "completed"]
    assert (rest["next"], rest["ended"]) == ("1.7", True)
    assert world.call("GET", path + "?after=1.7").json == {"events": [], "next": "1.7", "ended": True}
    assert world.edge.last.cursors[-1].closed


def test_a_page_of_a_run_that_goes_on_has_not_ended(world):
    path = f"/api/v1/runs/{world.submitted()}/events"
    assert world.call("GET", path).json == {"events": [], "next": "", "ended": False}
    world.edge.last.start()
    assert world.call("GET", path).json["ended"] is False


@pytest.mark.parametrize("after", ["x", "1", "1.x", "-1.1", "1.1.1", "99999999999.1"])
def test_a_bad_place_is_refused(world, after):
    assert world.call("GET", f"/api/v1/runs/{world.submitted()}/events?after={after}").status == 400


def test_a_stream_is_live_and_ends_with_the_run(world):
    run_id = world.submitted()
    wire = world.wire()
    wire.ask("GET", f"/api/v1/runs/{run_id}/events", Accept="text/event-stream")
    assert b"text/event-stream" in wire.received
    wire.streamed()
    world.edge.last.start()
    world.edge.last.emit(events.output("a\r\n\u2028\x00"), events.output("b"))
    body = wire.streamed()
    assert ids(body) == ["1.1", "1.2", "1.3"]
    told = [event.data for event in parse_events(iter(body.splitlines(keepends=True)))]
    assert told[1]["text"] == "a\r\n\u2028\x00"
    assert set(told[1]) == {"id", "attempt", "seq", "at", "type", "channel", "text"}
    world.edge.last.end("completed")
    assert wire.received.endswith(b"\r\n0\r\n\r\n")
    assert not wire.closed


def test_the_fast_format_is_the_slow_one(world):
    plain = events.output("x\"\n", run_pb2.CHANNEL_STDERR)
    lossy = events.output("�", run_pb2.CHANNEL_STDOUT, exact=b"\xff")
    world.edge.scripts["tiny"] = script(plain, lossy)
    path = f"/api/v1/runs/{world.submitted()}/events"
    page = world.call("GET", path).json["events"]
    wire = world.wire()
    wire.ask("GET", path, Accept="text/event-stream")
    body = wire.streamed()
    assert [event.data for event in parse_events(iter(body.splitlines(keepends=True)))] == page
    assert page[2]["bytes_b64"] == "/w=="


def test_a_reader_continues_behind_what_it_has_seen(world):
    world.edge.scripts["tiny"] = script(events.output("a"), events.output("b"))
    path = f"/api/v1/runs/{world.submitted()}/events"
    wire = world.wire()
    wire.ask("GET", path + "?after=1.1", Accept="text/event-stream", Last_Event_ID="1.2")
    assert ids(wire.streamed()) == ["1.3", "1.4"]
    wire = world.wire()
    wire.ask("GET", path, Accept="text/event-stream", Last_Event_ID="1.4")
    assert wire.received.endswith(b"0\r\n\r\n")


def test_two_readers_share_one_formatting_and_lag_apart(world):
    run_id = world.submitted()
    fast, slow = world.wire(), world.wire()
    for wire in (fast, slow):
        wire.ask("GET", f"/api/v1/runs/{run_id}/events", Accept="text/event-stream")
        wire.streamed()
    slow.transport.producer.pauseProducing()
    world.edge.last.start()
    world.edge.last.emit(events.output("x"))
    assert ids(fast.streamed()) == ["1.1", "1.2"]
    assert not slow.received
    world.edge.last.emit(events.output("y"))
    slow.transport.producer.resumeProducing()
    assert ids(slow.streamed()) == ["1.1", "1.2", "1.3"]
    assert all(list(entry.dialects) == ["sse"] for entry in world.edge.last.entries)


def test_a_reader_that_leaves_ends_nothing_but_its_cursor(world):
    run_id = world.submitted()
    wire = world.wire()
    wire.ask("GET", f"/api/v1/runs/{run_id}/events", Accept="text/event-stream")
    wire.leave()
    assert world.edge.last.cursors[-1].closed
    assert not world.edge.last.cancels


def test_a_reader_waits_for_history(world):
    world.edge.scripts["tiny"] = script(events.output("a"))
    run_id = world.submitted()
    page = world.edge.last.lagging = Deferred()
    wire = world.wire()
    wire.ask("GET", f"/api/v1/runs/{run_id}/events", Accept="text/event-stream")
    assert wire.streamed() == b""
    page.callback(None)
    assert ids(wire.streamed()) == ["1.1", "1.2", "1.3"]


# --- act

def test_cancel_is_idempotent(world):
    run_id = world.submitted()
    for _ in range(2):
        answer = world.call("POST", f"/api/v1/runs/{run_id}/cancel")
        assert (answer.status, answer.json["state"]) == (202, "cancelled")
    assert world.call("POST", f"/api/v1/runs/{run_id}/cancel", {"reason": "enough"}).status == 202
    assert world.edge.last.cancels[-1][1] == "enough"


def test_input_is_text_or_bytes(world):
    path = f"/api/v1/runs/{world.submitted()}/input"
    assert world.call("POST", path, {"text": "hé\n"}).status == 202
    assert world.call("POST", path, {"bytes_b64": "/w==", "end": True}).status == 202
    assert world.edge.last.inputs == [("hé\n".encode(), False), (b"\xff", True)]
    assert world.call("POST", path, {"bytes_b64": "!"}).status == 400
    assert world.call("POST", path, {"text": "a", "bytes_b64": "/w=="}).status == 400


def test_nodes_are_shown_labelled_and_drained(world):
    assert [node["node_id"] for node in world.call("GET", "/api/v1/nodes").json["nodes"]] == ["n1"]
    assert world.call("GET", "/api/v1/nodes/n2").status == 404
    answer = world.call("PATCH", "/api/v1/nodes/n1", {"labels": {"gpu": "a100", "room": None}, "drain": True}).json
    assert (answer["labels"], answer["draining"]) == ({"gpu": "a100"}, True)
    assert [asked for asked, _ in world.edge.asked] == ["label n1", "drain n1 True"]
    assert world.edge.asked[0][1].principal == "op"
    assert world.call("PATCH", "/api/v1/nodes/n1", {"labels": {"": "x"}}).status == 400


def test_a_node_carries_out_a_command(world):
    world.edge.answers["status"] = node_pb2.NodeCommandResponse(ok=True, result=b'{"running": 0}')
    answer = world.call("POST", "/api/v1/nodes/n1/commands", {"line": "status"})
    assert answer.json == {"ok": True, "result": {"running": 0}}
    refused = world.call("POST", "/api/v1/nodes/n1/commands", {"line": "explode"})
    assert (refused.status, refused.code) == (400, "invalid_request")
    assert world.call("POST", "/api/v1/nodes/n2/commands", {"line": "status"}).status == 404


def test_sessions_are_listed_and_closed(world):
    world.edge.sessions_by_id["s1"] = SessionRecord(session_id="s1", node_id="n1", adapter="cli", target="echo", created_us=1,
                                                    used_us=2, runs=3)
    listed = world.call("GET", "/api/v1/sessions").json["sessions"]
    assert [(one["session_id"], one["closed_at"]) for one in listed] == [("s1", None)]
    assert world.call("DELETE", "/api/v1/sessions/s1").json["closed_at"]
    assert world.call("DELETE", "/api/v1/sessions/s2").status == 409


def test_models_are_listed(world):
    assert {"name": "small", "adapter": "openai", "target": "tiny"}.items() <= world.call(
        "GET", "/api/v1/models").json["models"][1].items()


# --- lifecycle events

def test_lifecycle_events_come_as_a_page(world):
    for number in range(5):
        world.edge.happened("node_up", node_id=f"n{number}", detail=b'{"why": "x"}')
    latest = world.call("GET", "/api/v1/events?limit=2").json
    assert ([event["id"] for event in latest["events"]], latest["next"]) == ([4, 5], 5)
    assert latest["events"][0]["type"] == "node_up"
    assert latest["events"][0]["detail"] == {"why": "x"}
    after = world.call("GET", "/api/v1/events?after=3").json
    assert [event["id"] for event in after["events"]] == [4, 5]
    assert world.call("GET", "/api/v1/events?after=5").json == {"events": [], "next": 5}


def test_lifecycle_events_stream_from_where_the_reader_was(world):
    for _ in range(600):
        world.edge.happened("node_up")
    wire = world.wire()
    wire.ask("GET", "/api/v1/events?after=0", Accept="text/event-stream", Last_Event_ID="2")
    world.edge.happened("node_down")
    assert ids(wire.streamed()) == list(range(3, 602))
    wire.leave()
    assert not world.edge.watchers


def test_a_stream_without_a_place_begins_now(world):
    world.edge.happened("node_up")
    wire = world.wire()
    wire.ask("GET", "/api/v1/events", Accept="text/event-stream")
    world.edge.happened("node_down")
    assert ids(wire.streamed()) == [2]


def test_a_reader_of_lifecycle_events_that_lags_far_reads_history(world):
    wire = world.wire()
    wire.ask("GET", "/api/v1/events", Accept="text/event-stream")
    wire.streamed()
    wire.transport.producer.pauseProducing()
    for _ in range(2500):
        world.edge.happened("node_up")
    wire.transport.producer.resumeProducing()
    assert ids(wire.streamed()) == list(range(1, 2501))


@pytest.mark.parametrize("place", ["x", "-1", "1.5", "9" * 30, "9" * 19, str(2 ** 63)])
def test_a_bad_place_among_lifecycle_events_is_refused(world, place):
    assert world.call("GET", f"/api/v1/events?after={place}").status == 400
    assert world.call("GET", "/api/v1/events", Accept="text/event-stream", Last_Event_ID=place).status == 400


def test_a_run_is_verified(world):
    run_id = world.submitted()
    run = world.edge.last
    run.start()
    assert world.call("GET", f"/api/v1/runs/{run_id}/verify").json["whole"] is False
    run.emit(events.output("hello"))
    run.end("completed")
    found = world.call("GET", f"/api/v1/runs/{run_id}/verify").json
    assert (found["whole"], found["checked"], found["events"], found["bytes"], found["told"]) == (True, "numbers", 2, 5, None)
    assert world.call("GET", f"/api/v1/runs/{run_id}/verify", key=world.client).status == 404


def test_what_came_after_the_ending_is_read_apart_in_pages(world):
    run_id = world.submitted()
    run = world.edge.last
    run.end("failed")
    assert world.call("GET", f"/api/v1/runs/{run_id}/events?late=1").json == {"events": [], "next": "", "ended": True}
    run.late = [run_pb2.EventBatch(run_id=run_id, attempt=1, first_seq=first, events=[events.output(text) for text in texts])
                for first, texts in ((5, "abc"), (6, "bcd"))]
    told, after = [], ""
    while page := world.call("GET", f"/api/v1/runs/{run_id}/events?late=true&limit=2&after={after}").json["events"]:
        told += [event["id"] + event["text"] for event in page]
        after = page[-1]["id"]
    assert told == ["1.5a", "1.6b", "1.7c", "1.8d"]
    answer = world.call("GET", f"/api/v1/runs/{run_id}/events?late=1", accept="text/event-stream")
    assert answer.status == 400


def test_a_gap_names_the_first_that_is_missing_and_how_many(world):
    run_id = world.submitted()
    run = world.edge.last
    run.start()
    run._seq = 6
    run.emit(run_pb2.RuntimeEvent(gap=run_pb2.Gap(first_seq=2, reason="lost")))
    told = world.call("GET", f"/api/v1/runs/{run_id}/events?after=1.1").json["events"]
    assert told == [{"id": "1.7", "attempt": 1, "seq": 7, "at": None, "type": "gap", "first_seq": 2, "missing": 6,
                     "reason": "lost"}]
