"""Runs at the management API: submitted, looked at, acted on."""

import json

import pytest

from iop.errors import HistoryUnavailable, NoSuchTarget, QueueFull
from iop.testing.edge import script
from tests.edge.management import BODY


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
