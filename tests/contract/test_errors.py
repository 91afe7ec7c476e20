"""What the clients of OpenAI and Anthropic make of each refusal: the exception, its words, and how often they ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import anthropic
import openai
import pytest
import pytest_twisted
from twisted.internet.threads import deferToThread

from iop import errors
from iop.testing.edge import script
from tests.edge.models.loopback import Loopback, raised

TALK: Any = [{"role": "user", "content": "hi"}]
TRIES = 3                # the first, and the two that both clients make by themselves
NO_WAIT_S = 0.001
KINDS = {"BadRequestError": 400, "AuthenticationError": 401, "PermissionDeniedError": 403, "NotFoundError": 404,
         "ConflictError": 409, "RateLimitError": 429, "InternalServerError": 503}
# What is refused before a run begins, what OpenAI's clients are told, and how often they ask.
REFUSALS: list[tuple[errors.IOPError, int, str, str | None, int]] = [
    (errors.InvalidRequest(), 400, "invalid_request", None, 1),
    (errors.Forbidden(), 403, "permission_denied", None, 1),
    (errors.NoSuchTarget(), 404, "model_not_found", "model", 1),
    (errors.Conflict(), 409, "conflict", None, 1),
    (errors.RateLimited(), 429, "rate_limit_exceeded", None, TRIES),
    (errors.QueueFull(), 429, "rate_limit_exceeded", None, TRIES),
    (errors.QuotaExhausted(), 429, "insufficient_quota", None, 1),
    (errors.NoNode(), 503, "no_node_available", None, TRIES),
    (errors.Draining(), 503, "draining", None, TRIES),
    (errors.HistoryUnavailable(), 503, "history_unavailable", None, TRIES)]
# What ends a run before its first output: it has begun, so nobody may begin it again unasked.
FAILURES: list[tuple[errors.IOPError, int, str, str | None]] = [
    (errors.NodeLost(), 502, "node_lost", None),
    (errors.AdapterError(), 502, "adapter_error", None),
    (errors.UpstreamError("It broke."), 502, "upstream_error", None),
    (errors.StartTimeout(), 504, "start_timeout", "start_s"),
    (errors.FirstOutputTimeout(), 504, "first_output_timeout", "first_output_s"),
    (errors.RunTimeout(), 504, "run_timeout", "run_s"),
    (errors.IdleTimeout(), 504, "idle_timeout", "silence_s")]


class World(Loopback):
    """`asked`: how often a run was submitted."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        submit = self.edge.submit

        def counted(*args: Any, **how: Any) -> Any:
            self.asked += 1
            return submit(*args, **how)
        self.edge.submit = counted

    def openai(self) -> Any:
        client = openai.OpenAI(base_url=f"{self.url}/v1", api_key=self.key, timeout=10)
        return client.chat.completions.create(model="tiny", messages=TALK)

    def anthropic(self) -> Any:
        client = anthropic.Anthropic(base_url=self.url, api_key=self.key, timeout=10)
        return client.messages.create(model="tiny", messages=TALK, max_tokens=9)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.stop()


def named(kind: type, status: int) -> bool:
    return KINDS[kind.__name__] == min(status, 503)


@pytest.mark.parametrize(("error", "status", "code", "param", "tries"), REFUSALS, ids=lambda one: getattr(one, "code", None))
@pytest_twisted.ensureDeferred
async def test_a_refusal_is_typed_and_tried_again_only_where_that_can_help(
        world: World, error: errors.IOPError, status: int, code: str, param: str | None, tries: int) -> None:
    error.retry_after_s = NO_WAIT_S if error.retryable else 0.0
    world.edge.refusal = error
    told = await _raised(openai.APIStatusError, world.openai)
    assert named(type(told), status) and told.status_code == status
    assert (told.code, told.param, world.asked) == (code, param, tries)
    assert isinstance(told.type, str) and str(error) in told.message and told.request_id.startswith("req_")
    world.asked = 0
    told = await _raised(anthropic.APIStatusError, world.anthropic)
    assert told.status_code == status and str(error) in told.body["error"]["message"]
    assert (told.body["type"], world.asked) == ("error", tries) and told.request_id.startswith("req_")


@pytest.mark.parametrize(("error", "status", "code", "param"), FAILURES, ids=lambda one: getattr(one, "code", None))
@pytest_twisted.ensureDeferred
async def test_a_run_that_has_begun_and_failed_is_begun_once(
        world: World, error: errors.IOPError, status: int, code: str, param: str | None) -> None:
    world.edge.scripts["tiny"] = script(error=error)
    told = await _raised(openai.APIStatusError, world.openai)
    assert (told.status_code, told.code, told.param, world.asked) == (status, code, param, 1)
    assert told.response.headers["x-iop-run-id"]
    world.asked = 0
    told = await _raised(anthropic.APIStatusError, world.anthropic)
    assert (told.status_code, world.asked) == (status, 1)


@pytest_twisted.ensureDeferred
async def test_a_wait_in_milliseconds_is_kept_to_and_the_next_try_answers(world: World) -> None:
    full = errors.QueueFull()
    full.retry_after_s = NO_WAIT_S
    world.edge.refusal = full
    world.edge.scripts["tiny"] = script()
    submit = world.edge.submit

    def refused_once(*args: Any, **how: Any) -> Any:
        told = submit(*args, **how)
        world.edge.refusal = None
        return told
    world.edge.submit = refused_once
    answer = await deferToThread(world.openai)
    assert (answer.choices[0].finish_reason, world.asked) == ("stop", 2)


def _raised(kind: type, call: Callable[[], Any]) -> Any:
    return deferToThread(partial(raised, kind, call))
