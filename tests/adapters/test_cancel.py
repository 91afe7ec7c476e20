"""A stop reaches the backend at once, whatever it is doing: a real server on loopback tells when it saw the close."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.task import Clock

from iop.adapters import openai
from iop.errors import Cancelled
from tests.adapters.asking import Asked
from tests.adapters.kit import Sink, Started, Tools, target, until
from tests.adapters.upstream import Call, Upstream

SOON_S = 0.25            # a stop is seen within this; it takes 1 to 3 ms on an idle machine
CHAT = {"model": "a", "messages": [{"role": "user", "content": "hi"}]}


class Stopped:
    """Stops a run and looks at when the run told its end, and when the server saw the close."""

    def __init__(self, run: Started) -> None:
        self.at = reactor.seconds()
        self._run = run
        run.execution.finished.addCallback(self._finished)
        self.told_at: float | None = None
        run.execution.stop(Cancelled())

    def _finished(self, ending: Any) -> Any:
        self.told_at = reactor.seconds()
        return ending

    async def is_seen(self, call: Call) -> None:
        closed_at = await until(lambda: call.closed_at, SOON_S)
        assert closed_at - self.at < SOON_S
        assert (await self._run.ended())[0] == "cancelled"


async def prefill(asked: Asked, call: Call) -> None:
    """The request has come, and no byte is answered."""


async def head(asked: Asked, call: Call) -> None:
    call.stream_head()
    await until(lambda: asked.run.sink.kinds)


async def pings(asked: Asked, call: Call) -> None:
    await head(asked, call)
    for _ in range(3):
        call.chunk(b": ping\n\n")


async def streaming(asked: Asked, call: Call) -> None:
    await head(asked, call)
    call.words("Hello")
    await until(lambda: asked.run.execution._reader.heard)


async def half_a_chunk(asked: Asked, call: Call) -> None:
    await streaming(asked, call)
    call.send(b"ff\r\ndata: {")


async def an_error_half_told(asked: Asked, call: Call) -> None:
    call.head("500 Oops", Content_Length="1000")
    call.send(b"half")
    await until(lambda: asked.run.execution._pieces)


PHASES = [prefill, head, pings, streaming, half_a_chunk, an_error_half_told]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(("api", "body"), [("chat/completions", CHAT | {"stream": True}), ("chat/completions", CHAT)])
@pytest_twisted.ensureDeferred
async def test_a_stop_closes_the_connection_in_every_phase(asked: Asked, phase: Any, api: str, body: Any) -> None:
    call = await asked.ask(body=json.dumps(body).encode(), api=api)
    await phase(asked, call)
    await Stopped(asked.run).is_seen(call)


@pytest.mark.parametrize(("api", "content_type"), [("embeddings", "application/json"), ("audio/speech", "audio/mpeg"),
                                                   ("responses", "application/json")])
@pytest_twisted.ensureDeferred
async def test_a_stop_closes_the_connection_of_every_api(asked: Asked, api: str, content_type: str) -> None:
    call = await asked.ask(body=json.dumps(CHAT | {"input": "x"}).encode(), api=api)
    call.head(Content_Type=content_type, Content_Length="1000")
    call.send(b"{half")
    await until(lambda: asked.run.sink.kinds)
    await Stopped(asked.run).is_seen(call)


@pytest_twisted.ensureDeferred
async def test_a_stop_closes_the_connection_of_what_was_asked_instead(asked: Asked) -> None:
    call = await asked.ask(body=b'{"model":"a","input":"x","stream":true}', api="responses")
    call.whole(b"", "404 Not Found")
    await until(lambda: len(asked.upstream.calls) == 2)
    await Stopped(asked.run).is_seen(asked.upstream.calls[1])


@pytest_twisted.ensureDeferred
async def test_a_stop_reaches_a_backend_that_does_not_read_the_request(asked: Asked) -> None:
    asked.upstream.reads = False
    body = json.dumps(CHAT | {"padding": "x" * 30_000_000}).encode()
    asked.run = Started(openai.factory, Tools(asked.clock), target("m", url=asked.upstream.url), body=body,
                        api="chat/completions")
    await until(lambda: asked.upstream.connections)
    stopped = Stopped(asked.run)
    assert (await asked.run.ended(SOON_S))[0] == "cancelled"
    asked.upstream.last.transport.resumeProducing()        # only who reads sees a close
    await until(lambda: asked.upstream.last.closed_at)
    assert stopped.told_at is not None and not asked.upstream.calls


@pytest_twisted.ensureDeferred
async def test_a_stop_ends_the_attempt_to_connect() -> None:
    """A listener whose queue is full answers no further attempt."""
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    others = [socket.socket() for _ in range(4)]
    for other in others:
        other.setblocking(False)
        other.connect_ex(full.getsockname())
    clock = Clock()
    run = Started(openai.factory, Tools(clock), target("m", url=f"http://127.0.0.1:{full.getsockname()[1]}/v1"))
    before = await until(lambda: [writer for writer in reactor.getWriters() if hasattr(writer, "doConnect")])
    run.execution.stop(Cancelled())
    assert (await run.ended(SOON_S))[0] == "cancelled"
    await until(lambda: not set(before) & set(reactor.getWriters()), SOON_S)
    assert not clock.getDelayedCalls()
    for one in (full, *others):
        one.close()
    await run.close()


@pytest_twisted.ensureDeferred
async def test_a_stopped_runs_connection_is_never_used_again(asked: Asked) -> None:
    call = await asked.ask(body=json.dumps(CHAT | {"stream": True}).encode(), api="chat/completions")
    await streaming(asked, call)
    await Stopped(asked.run).is_seen(call)
    sink = Sink()
    again = asked.run.adapter.execute(asked.run.execution._spec, sink)
    await until(lambda: len(asked.upstream.calls) == 2)
    assert asked.upstream.connections == 2
    again.stop(Cancelled())


@pytest_twisted.ensureDeferred
async def test_a_stop_that_meets_the_last_word_ends_the_run_once(asked: Asked) -> None:
    call = await asked.ask(body=json.dumps(CHAT | {"stream": True}).encode(), api="chat/completions")
    await streaming(asked, call)
    call.end()
    asked.run.execution.stop(Cancelled())
    assert (await asked.run.ended())[0] == "cancelled"
    assert len(asked.run.endings) == 1


@pytest_twisted.ensureDeferred
async def test_a_stop_tells_its_end_when_the_connection_is_closed(upstream: Upstream) -> None:
    run = Started(openai.factory, Tools(Clock()), target("m", url=upstream.url))
    call = await until(lambda: upstream.calls and upstream.calls[0])
    connections = [reader for reader in reactor.getReaders() if hasattr(reader, "connector")]
    assert connections
    found: list[bool] = []

    def look(ending: Any) -> Any:
        found.append(any(connection.connected for connection in connections))
        return ending

    run.execution.finished.addCallback(look)
    run.execution.stop(Cancelled())
    await run.ended()
    assert found == [False], "its slot must not be given away while the backend still has the request"
    await until(lambda: call.closed_at)
    await run.close()
