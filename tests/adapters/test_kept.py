"""Connections that are used again, and stops in every phase of one."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_twisted
from twisted.internet.task import Clock

from iop.adapters import openai
from iop.errors import Cancelled
from tests.adapters.asking import Asked, started_with_words
from tests.adapters.kit import Sink, Started, Tools, target, until
from tests.adapters.upstream import Call, Upstream


@pytest_twisted.ensureDeferred
async def test_a_connection_is_used_again(asked: Asked) -> None:
    call = await asked.ask()
    call.stream_head()
    call.end()
    await asked.run.ended()
    adapter, first = asked.run.adapter, asked.run
    again = adapter.execute(first.execution._spec, first.sink)
    await until(lambda: len(asked.upstream.calls) == 2)
    assert asked.upstream.connections == 1
    again.stop(Cancelled())


async def kept(asked: Asked, **request: Any) -> tuple[Call, Any]:
    """A second run's call on the connection that a first one left."""
    call = await asked.ask(**request)
    call.stream_head()
    call.end()
    await asked.run.ended()
    sink = Sink()
    sink.execution = asked.run.adapter.execute(asked.run.execution._spec, sink)
    await until(lambda: len(asked.upstream.calls) == 2)
    assert asked.upstream.connections == 1
    return asked.upstream.calls[1], sink.execution


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest_twisted.ensureDeferred
async def test_a_request_that_meets_the_close_of_a_kept_connection_is_sent_once_more(asked: Asked, how: str) -> None:
    call, run = await kept(asked)
    getattr(call, how)()
    await until(lambda: len(asked.upstream.calls) == 3)
    assert asked.upstream.connections == 2
    assert asked.upstream.requests[1] == asked.upstream.requests[2]
    asked.upstream.calls[2].stream_head()
    asked.upstream.calls[2].end()
    assert (await run.finished)[0] == "completed"


@pytest_twisted.ensureDeferred
async def test_a_new_connection_that_is_closed_as_well_is_the_end(asked: Asked) -> None:
    call, run = await kept(asked)
    call.close()
    await until(lambda: len(asked.upstream.calls) == 3)
    asked.upstream.calls[2].close()
    assert (await run.finished)[1].code == "upstream_error"
    assert len(asked.upstream.calls) == 3


@pytest_twisted.ensureDeferred
async def test_what_must_not_be_retried_is_never_sent_twice(asked: Asked) -> None:
    call, run = await kept(asked, prompt="hi", retry_safe=False)
    call.close()
    assert (await run.finished)[1].retryable
    assert len(asked.upstream.calls) == 2


@pytest_twisted.ensureDeferred
async def test_a_reply_that_has_begun_is_not_asked_for_again(asked: Asked) -> None:
    call, run = await kept(asked)
    call.send(b"HTTP/1.1 2")
    await until(lambda: asked.run.adapter is not None)
    call.close()
    assert (await run.finished)[1].code == "upstream_error"
    assert len(asked.upstream.calls) == 2


@pytest_twisted.ensureDeferred
async def test_a_stop_on_a_kept_connection_is_a_stop(asked: Asked) -> None:
    call, run = await kept(asked)
    run.stop(Cancelled())
    assert (await run.finished)[0] == "cancelled"
    await until(lambda: not call.open)
    assert len(asked.upstream.calls) == 2


@pytest.mark.parametrize("phase", ["asked", "started", "streaming", "after an error's head"])
@pytest_twisted.ensureDeferred
async def test_a_stop_closes_the_connection_at_once(asked: Asked, phase: str) -> None:
    call = await asked.ask()
    if phase == "started":
        call.stream_head()
        await until(lambda: asked.run.sink.kinds)
    elif phase == "streaming":
        started_with_words(call)
        await until(lambda: len(asked.run.sink.kinds) > 1)
    elif phase == "after an error's head":
        call.head("500 Oops", Content_Length="1000")
        call.send(b"half")
        await until(lambda: asked.run.execution._pieces)
    asked.run.execution.stop(Cancelled())
    await until(lambda: not call.open, 1)
    assert (await asked.run.ended())[0] == "cancelled"


@pytest_twisted.ensureDeferred
async def test_a_stop_while_connecting_ends_the_attempt(upstream: Upstream) -> None:
    run = Started(openai.factory, Tools(Clock()), target("m", url=upstream.url))
    run.execution.stop(Cancelled())        # in the same turn: the connection cannot be there yet
    assert (await run.ended())[0] == "cancelled"
    assert not upstream.requests
    await run.close()
