"""Runs on a server that the node owns: a real connection to a scripted upstream, and servers that the test hands out."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from zope.interface import implementer

from iop.adapters import openai
from iop.errors import AdapterError, Cancelled
from iop.interfaces import IServers, IServerUse
from iop.servers import ServerSpec
from tests.adapters.kit import Started, Tools, target, until
from tests.adapters.upstream import Call, Upstream, delta

SERVE = {"argv": ["/bin/serve", "--port", "{port}"], "name": "s"}
REPLY = b'{"choices":[{"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}]}'


@implementer(IServerUse)
class HandUse:
    def __init__(self, url: str) -> None:
        self.url = url
        self.released = 0
        self.cuts = 0

    def release(self) -> None:
        self.released += 1

    def cut_off(self) -> None:
        self.cuts += 1


@implementer(IServers)
class HandServers:
    """Each use waits until the test gives it."""

    def __init__(self) -> None:
        self.asked: list[tuple[Deferred[Any], Any]] = []
        self.cancelled = 0

    def use(self, spec: ServerSpec, told: Any) -> Deferred[Any]:
        waiting: Deferred[Any] = Deferred(self._gave_up)
        self.asked.append((waiting, told))
        return waiting

    def _gave_up(self, waiting: Deferred[Any]) -> None:
        self.cancelled += 1

    def state(self, spec: ServerSpec) -> str:
        return "starting"

    def url(self, spec: ServerSpec) -> str:
        return ""

    def give(self, upstream: Upstream) -> HandUse:
        use = HandUse(upstream.url.removesuffix("/v1"))
        self.asked[-1][0].callback(use)
        return use


class Run(Started):
    """A run, its servers beside it."""

    def __init__(self, request: dict[str, Any] | None = None, **more: Any) -> None:
        self.servers = HandServers()
        tools = Tools(reactor)
        tools.servers = self.servers
        super().__init__(openai.factory, tools, target("m", **{"serve": SERVE, "answers": "plain"} | more), **(request or {}))

    @property
    def words(self) -> list[tuple[str, str, float]]:
        return [(event.status.word, event.status.detail, event.status.progress) for event in self.sink.events
                if event.WhichOneof("kind") == "status"]


@pytest_twisted.async_yield_fixture
async def upstream() -> AsyncIterator[Upstream]:
    found = Upstream()
    yield found
    await found.stop()


@pytest_twisted.ensureDeferred
async def test_the_request_goes_out_once_the_server_is_ready_and_the_use_ends_with_the_run(upstream: Upstream) -> None:
    run = Run()
    run.servers.asked[0][1]("s is loading", 0.5)
    assert run.words == [("loading", "s is loading", 0.5)] and not upstream.calls
    use = run.servers.give(upstream)
    call = await until(lambda: upstream.calls and upstream.calls[0])
    assert upstream.requests[0][0] == "POST /v1/chat/completions HTTP/1.1" and not use.released
    call.whole(REPLY)
    assert (await run.ended())[0] == "completed" and use.released == 1 and use.cuts == 0
    started = next(event.started for event in run.sink.events if event.WhichOneof("kind") == "started")
    assert started.detail == use.url
    await run.close()


@pytest_twisted.ensureDeferred
async def test_a_cancel_while_it_loads_ends_the_run_at_once_and_the_wait_alone() -> None:
    run = Run()
    run.execution.stop(Cancelled())
    assert run.endings[0][0] == "cancelled" and run.servers.cancelled == 1
    run.servers.asked[0][1]("too late", 0.0)
    assert run.words == []
    await run.close()


@pytest_twisted.ensureDeferred
async def test_why_there_is_no_server_is_how_the_run_ends() -> None:
    run = Run()
    run.servers.asked[0][0].errback(AdapterError("The server s: it ended with exit code 1."))
    kind, outcome = await run.ended()
    assert (kind, outcome.code) == ("failed", "adapter_error") and "exit code 1" in outcome.message
    await run.close()


@pytest_twisted.ensureDeferred
async def test_a_request_that_got_no_answer_is_made_again_on_the_server_that_comes_then(upstream: Upstream) -> None:
    run = Run()
    use = run.servers.give(upstream)
    call = await until(lambda: upstream.calls and upstream.calls[0])
    call.transport.abortConnection()
    await until(lambda: len(run.servers.asked) == 2)
    assert (use.cuts, use.released) == (1, 0) and run.endings == []
    use = run.servers.give(upstream)
    call = await until(lambda: len(upstream.calls) == 2 and upstream.calls[1])
    call.whole(REPLY)
    assert (await run.ended())[0] == "completed" and use.released == 1
    await run.close()


ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}


def killed_behind_its_head(call: Call, how: str) -> None:
    """Before the model said anything: some servers send the head, and the role, before they read the prompt."""
    if how == "half a body":
        call.head(Content_Type="application/json", Content_Length="99")
        call.send(REPLY[:20])
    elif how == "closed":
        call.head(Content_Type="text/event-stream", Connection="close")
        call.close()
        return
    else:
        call.stream_head()
        if how == "role":
            call.event(ROLE)
    call.reset()


@pytest.mark.parametrize(("answers", "stream", "how"), [
    ("plain", False, "half a body"), ("plain", True, "head"), ("plain", True, "role"), ("plain", True, "closed"),
    ("joined", False, "head"), ("joined", False, "role"), ("joined", False, "words")])
@pytest_twisted.ensureDeferred
async def test_a_server_that_dies_behind_its_head_is_asked_again_as_long_as_nothing_was_told(
        upstream: Upstream, answers: str, stream: bool, how: str) -> None:
    body = {"model": "a", "messages": [], "stream": stream}
    run = Run(answers=answers, request={"api": "chat/completions", "body": json.dumps(body).encode()})
    use = run.servers.give(upstream)
    call = await until(lambda: upstream.calls and upstream.calls[0])
    if how == "words":
        call.stream_head()
        call.words("half of an")
        await until(lambda: run.sink.kinds)
        call.reset()
    else:
        killed_behind_its_head(call, how)
    await until(lambda: len(run.servers.asked) == 2 or run.endings)
    assert (use.cuts, use.released, run.endings) == (1, 0, [])
    use = run.servers.give(upstream)
    call = await until(lambda: len(upstream.calls) == 2 and upstream.calls[1])
    assert upstream.requests[0][2] == upstream.requests[1][2]
    call.stream_head()
    call.words("hello")
    call.end()
    assert (await run.ended())[0] == "completed" and run.sink.text() == "hello" and use.released == 1
    await run.close()


@pytest.mark.parametrize("how", ["told", "refused", "error"])
@pytest_twisted.ensureDeferred
async def test_one_that_told_something_or_refused_is_not_asked_again(upstream: Upstream, how: str) -> None:
    body = {"model": "a", "messages": [], "stream": True}
    run = Run(request={"api": "chat/completions", "body": json.dumps(body).encode()})
    use = run.servers.give(upstream)
    call = await until(lambda: upstream.calls and upstream.calls[0])
    if how == "refused":
        call.whole(b"busy", "503 Busy")
    else:
        call.stream_head()
        call.event({"error": {"message": "busy", "code": 503}} if how == "error" else delta("hello"))
        await until(lambda: run.sink.kinds)
        call.reset()
    assert (await run.ended())[0] == "failed" and len(run.servers.asked) == 1 and (use.cuts, use.released) == (0, 1)
    await run.close()


@pytest_twisted.ensureDeferred
async def test_but_not_for_ever(upstream: Upstream) -> None:
    run = Run()
    for count in (1, 2, 3):
        run.servers.give(upstream)
        call = await until(lambda wanted=count: len(upstream.calls) == wanted and upstream.calls[-1])
        call.transport.abortConnection()
        await until(lambda wanted=count: len(run.servers.asked) > wanted or run.endings)
    assert (await run.ended())[0] == "failed" and len(run.servers.asked) == 3
    await run.close()


@pytest_twisted.ensureDeferred
async def test_one_that_had_output_or_was_slow_is_not_made_again(upstream: Upstream) -> None:
    run = Run(first_byte_s=0.2, whole_s=0.2)
    use = run.servers.give(upstream)
    await until(lambda: upstream.calls)
    kind, outcome = await run.ended()
    assert kind == "failed" and "too slow" in outcome.message and len(run.servers.asked) == 1
    assert (use.cuts, use.released) == (0, 1)
    await run.close()
