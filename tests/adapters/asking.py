"""A run of a model adapter whose request has reached the backend of a test."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.task import Clock

from iop.adapters import openai
from tests.adapters.kit import Started, Tools, target, until
from tests.adapters.upstream import Call, Upstream, delta

MODELS = b'{"data":[{"id":"m","max_model_len":4096}]}'
RESPONSES = {"model": "alias", "input": "hi", "stream": True}
MESSAGES = {"model": "alias", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "stream": True}
BODIES: dict[str, dict[str, Any]] = {
    "responses": RESPONSES, "messages": MESSAGES, "completions": {"model": "alias", "prompt": "hi", "stream": True}}


class Asked:
    """A run whose request has reached the backend; deadlines run on a clock of the test."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.clock = Clock()
        self.run: Any = None

    async def ask(self, factory: Any = openai.factory, settings: dict[str, Any] | None = None, **request: Any) -> Call:
        config = target("m", url=self.upstream.url, **(settings or {}))
        before = len(self.upstream.calls)
        self.run = Started(factory, Tools(self.clock), config, **request)
        await until(lambda: len(self.upstream.calls) > before)
        return self.upstream.calls[-1]

    async def fails(self, *words: str, status: int = 0) -> Any:
        kind, outcome = await self.run.ended()
        assert (kind, outcome.code) == ("failed", "upstream_error"), outcome
        for word in words:
            assert word in outcome.message
        assert outcome.upstream_status == status
        return outcome


def started_with_words(call: Call) -> None:
    call.stream_head()
    call.words("Hello", " world")


def response(asked: Asked) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(asked.run.sink.events[0].started.response)
    return found


def raws(asked: Asked) -> bytes:
    return b"".join(event.raw for event in asked.run.sink.events)


async def told_as_a_chat(asked: Asked, call: Call) -> None:
    assert asked.upstream.requests[-1][0] == "POST /v1/chat/completions HTTP/1.1"
    call.stream_head()
    call.words("Hel", "lo")
    call.end()
    kind, outcome = await asked.run.ended()
    assert (kind, outcome.usage.total_tokens) == ("completed", 5), outcome
    assert asked.run.sink.text() == "Hello" and response(asked)["api"] == "chat/completions"
    assert raws(asked).startswith(json.dumps(delta("Hel")).encode())
