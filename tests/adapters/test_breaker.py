"""A backend whose health check passes and whose runs fail is told as not ready."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_twisted
from twisted.internet.task import Clock

from iop.adapters import vllm
from iop.adapters.wire.breaker import FAILURES, LONGEST_PAUSE_S, PAUSE_S, Breaker
from iop.proto.run_pb2 import Outcome
from tests.adapters.kit import Sink, Started, Tools, target, until
from tests.adapters.upstream import Upstream

BROKEN = Outcome(code="upstream_error", upstream_status=500, message="head_dim=16 is not supported")


def opened(at: float = 0.0) -> Breaker:
    breaker = Breaker()
    for _ in range(FAILURES):
        breaker.ended("failed", BROKEN, at)
    return breaker


def test_failures_in_a_row_make_it_not_ready_with_the_reason() -> None:
    breaker = Breaker()
    for _ in range(FAILURES - 1):
        assert not breaker.ended("failed", BROKEN, 0)
    assert breaker.checked("", 0) == ""
    assert breaker.ended("failed", BROKEN, 0), "that is news"
    assert not breaker.ended("failed", BROKEN, 1)
    assert "head_dim" in breaker.checked("", 1) and "health check passes" in breaker.checked("", 1)


def test_one_that_completes_begins_the_row_anew() -> None:
    breaker = Breaker()
    for _ in range(3 * FAILURES):
        breaker.ended("failed", BROKEN, 0)
        breaker.ended("completed", Outcome(code="ok"), 0)
    assert breaker.checked("", 0) == ""
    breaker = opened()
    assert breaker.ended("completed", Outcome(code="ok"), 0), "that is news"
    assert breaker.checked("", 0) == ""


@pytest.mark.parametrize(("kind", "outcome"), [
    ("failed", Outcome(code="upstream_error", upstream_status=400)), ("failed", Outcome(code="upstream_error")),
    ("failed", Outcome(code="upstream_error", upstream_status=429, retryable=True)), ("failed", Outcome(code="run_timeout")),
    ("failed", Outcome(code="invalid_request")), ("cancelled", Outcome(code="cancelled"))])
def test_what_is_no_fault_of_the_backends_says_nothing(kind: str, outcome: Outcome) -> None:
    breaker = Breaker()
    for _ in range(3 * FAILURES):
        breaker.ended(kind, outcome, 0)
    assert breaker.checked("", 0) == ""
    breaker = opened()
    breaker.ended(kind, outcome, 0)
    assert breaker.checked("", 0)


def test_unreachable_counts() -> None:
    breaker = Breaker()
    for _ in range(FAILURES):
        breaker.ended("failed", Outcome(code="upstream_error", retryable=True, message="refused"), 0)
    assert "refused" in breaker.checked("", 0)


def test_after_a_pause_it_may_try_and_one_failure_doubles_the_pause() -> None:
    breaker, now, pause = opened(), 0.0, PAUSE_S
    for _ in range(8):
        assert breaker.checked("", now + pause - 1) and breaker.checked("", now + pause) == ""
        now += pause
        breaker.ended("failed", BROKEN, now)
        pause = min(2 * pause, LONGEST_PAUSE_S)
    assert pause == LONGEST_PAUSE_S
    breaker.ended("completed", Outcome(code="ok"), now)
    for _ in range(FAILURES):
        breaker.ended("failed", BROKEN, now)
    assert breaker.checked("", now + PAUSE_S - 1), "a good run forgets the pauses"
    assert breaker.checked("", now + PAUSE_S) == ""


def test_runs_that_fail_meanwhile_do_not_make_the_pause_longer() -> None:
    breaker = opened(0)
    for at in range(20):
        breaker.ended("failed", BROKEN, at)
    assert breaker.checked("", PAUSE_S) == ""


def test_a_server_that_was_away_and_is_back_is_another_one() -> None:
    breaker = opened(0)
    assert breaker.checked("cannot be reached", 1) == "cannot be reached"
    assert breaker.checked("", 2) == ""


@pytest_twisted.ensureDeferred
async def test_a_server_that_is_healthy_and_answers_nothing_is_told_as_not_ready(upstream: Upstream) -> None:
    """vLLM 0.32.0 with a head_dim that its CPU backend does not know: /health says 200, each request 500."""
    clock = Clock()
    run: Any = Started(vllm.factory, Tools(clock), target("m", url=upstream.url))
    for count in range(FAILURES):
        await until(lambda wanted=count + 1: len(upstream.calls) == wanted)
        upstream.calls[-1].whole(b'{"error":{"message":"Unsupported CPU attention configuration"}}', "500 Oops")
        await run.ended()
        if count < FAILURES - 1:
            run.endings.clear()
            sink = Sink()
            sink.execution = run.execution = run.adapter.execute(run.execution._spec, sink)
            run.execution.finished.addCallback(run._finished)
    assert run.adapter.doubtful, "the node is told at once, not at the next round"
    asking = run.adapter.check()
    assert not run.adapter.doubtful
    await until(lambda: len(upstream.calls) == FAILURES + 1)
    assert upstream.requests[-1][0] == "GET /health HTTP/1.1"
    upstream.calls[-1].whole(b"")
    await until(lambda: len(upstream.calls) == FAILURES + 2)
    upstream.calls[-1].whole(b"")                # its list of models
    assert "Unsupported CPU attention" in (await asking)["m"].why_not
    await run.close()
