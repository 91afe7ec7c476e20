"""What stands in the head of every answer of a model API."""

import pytest

from iop import events
from iop.errors import QueueFull, QuotaExhausted, RateLimited, UpstreamError
from iop.proto import run_pb2
from iop.proto.run_pb2 import RuntimeEvent
from iop.testing.edge import script
from tests.edge.models.conftest import chat_chunk, played, started

ASKS = {
    "/v1/chat/completions": {"model": "tiny", "messages": [{"role": "user", "content": "x"}]},
    "/v1/completions": {"model": "tiny", "prompt": "x"},
    "/v1/messages": {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 5},
    "/v1/embeddings": {"model": "tiny", "input": "x"},
    "/api/chat": {"model": "tiny", "messages": [{"role": "user", "content": "x"}]},
}
every_api = pytest.mark.parametrize("path", ASKS)


def warning(detail):
    return RuntimeEvent(at_us=1, status=run_pb2.Status(word="warning", detail=detail))


@every_api
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_tells_of_its_run(world, path, stream):
    api = None if path == "/v1/embeddings" else "chat/completions"
    world.edge.scripts["tiny"] = played(started(api), warning("web_search is skipped"), chat_chunk("stop", content="a"))
    answer = world.call("POST", path, {**ASKS[path], "stream": stream}, x_request_id="client-id-1")
    run = world.edge.last
    assert answer.status == 200
    told = {name: answer.headers[name] for name in ("x-request-id", "x-iop-run-id", "x-iop-node", "x-iop-warning")}
    assert told == {"x-request-id": "client-id-1", "x-iop-run-id": run.record.run_id, "x-iop-node": "n1",
                    "x-iop-warning": "web_search is skipped"}
    assert int(answer.headers["x-iop-queue-ms"]) >= 0
    assert float(answer.headers["x-iop-overhead-ms"]) >= 0


def test_the_reason_of_the_placement_is_told(world):
    def play(run):
        run.record.placement = "affinity: n1 has its prompt"
        played(started(), chat_chunk(content="a"))(run)
    world.edge.scripts["tiny"] = play
    path = "/v1/chat/completions"
    assert world.call("POST", path, ASKS[path]).headers["x-iop-placement"] == "affinity: n1 has its prompt"


def test_a_warning_cannot_make_a_header_of_its_own(world):
    world.edge.scripts["tiny"] = played(started(), warning("a\r\nx-evil: 1"), warning("b" * 5000), chat_chunk(content="a"))
    path = "/v1/chat/completions"
    answer = world.call("POST", path, ASKS[path])
    assert "x-evil" not in answer.headers
    assert len(answer.headers["x-iop-warning"]) <= 500


def test_the_edges_own_time_is_told_without_the_queue(world):
    path = "/v1/chat/completions"
    wire = world.asking(path, ASKS[path])
    world.clock.advance(7)
    played(started(), chat_chunk(content="a"))(world.edge.last)
    assert wire.answer().headers["x-iop-overhead-ms"] == "0.0"


@every_api
def test_a_refusal_that_passes_says_when_to_the_millisecond(world, path):
    error = QueueFull()
    error.retry_after_s = 1.25
    world.edge.refusal = error
    answer = world.call("POST", path, ASKS[path])
    assert answer.status == (503 if path == "/api/chat" else 429)
    assert (answer.headers["retry-after"], answer.headers["retry-after-ms"]) == ("2", "1250")


@every_api
def test_a_known_model_without_a_ready_node_is_503_and_an_unknown_one_404(world, path):
    world.edge.node("n1").state = "down"
    answer = world.call("POST", path, ASKS[path])
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert world.call("POST", path, {**ASKS[path], "model": "no"}).status == 404
    assert not world.edge.runs_by_id


@pytest.mark.parametrize("path", [path for path in ASKS if path != "/api/chat"])
def test_a_run_that_has_begun_is_not_begun_again_by_its_client(world, path):
    error = UpstreamError("The backend answered 503.", status=503, retryable=True)
    world.edge.scripts["tiny"] = script(error=error)
    answer = world.call("POST", path, ASKS[path])
    assert (answer.status, answer.headers["x-should-retry"]) == (503, "false")
    world.edge.scripts["tiny"] = lambda run: run.end("failed", events.outcome_of(error))
    assert "x-should-retry" not in world.call("POST", path, ASKS[path]).headers


def test_what_a_backend_asks_to_wait_is_passed_on(world):
    error = UpstreamError("busy", status=429, retryable=True)
    outcome = events.outcome_of(error)
    outcome.retry_after_s = 0.4
    world.edge.scripts["tiny"] = lambda run: run.end("failed", outcome)
    path = "/v1/chat/completions"
    answer = world.call("POST", path, ASKS[path])
    assert (answer.status, answer.headers["retry-after"], answer.headers["retry-after-ms"]) == (429, "1", "400")


@pytest.mark.parametrize(("error", "code", "kind", "retry"), [
    (RateLimited(), "rate_limit_exceeded", "rate_limit_error", None),
    (QuotaExhausted(), "insufficient_quota", "insufficient_quota", "false")])
def test_a_key_that_is_used_up_is_told_apart_and_what_it_has_left(world, error, code, kind, retry):
    world.edge.refusal = error
    left = {"x-ratelimit-limit-requests": "10", "x-ratelimit-remaining-requests": "0"}
    world.edge.allowance = lambda principal: left if principal == "op" else {}
    path = "/v1/chat/completions"
    answer = world.call("POST", path, ASKS[path])
    assert (answer.status, answer.code, answer.json["error"]["type"]) == (429, code, kind)
    assert (answer.headers.get("x-should-retry"), answer.headers["x-ratelimit-limit-requests"]) == (retry, "10")
    world.edge.refusal = None
    world.edge.scripts["tiny"] = played(started(), chat_chunk(content="a"))
    assert world.call("POST", path, ASKS[path]).headers["x-ratelimit-remaining-requests"] == "0"


def test_anthropics_clients_find_the_request_under_their_own_name(world):
    for key, path in ((None, "/v1/messages"), ("wrong", "/v1/messages")):
        answer = world.call("POST", path, {"model": "no", "messages": []}, key=key)
        assert answer.headers["request-id"] == answer.headers["x-request-id"] == answer.json["request_id"]
        assert answer.json["type"] == "error"
