"""A run of a model adapter whose request has reached the backend of a test."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock

from iop.adapters import openai
from tests.adapters.kit import Started, Tools, target, until
from tests.adapters.upstream import Call, Upstream


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
