"""What takes a command longer than anybody waits for its answer: begun once, told about as often as somebody asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from iop.errors import InvalidRequest, IOPError
from iop.node.waiting import at_most
from iop.servers import Told

LONGEST_WAIT_S = 60

Begin = Callable[[Told], Deferred[Any]]


class Work:
    """A load or a pull, say. `done` fires when it has ended, whichever way; `error` is what it failed with."""

    def __init__(self, begin: Begin) -> None:
        self.detail = ""
        self.progress = 0.0
        self.error: IOPError | None = None
        self.ended = False
        self.done: Deferred[None] = Deferred()
        begin(self._told).addCallbacks(lambda _: None, self._failed).addCallback(self._over)

    def _told(self, detail: str, progress: float) -> None:
        self.detail, self.progress = detail, progress

    def _failed(self, failure: Failure) -> None:
        self.error = failure.value if isinstance(failure.value, IOPError) else IOPError()

    def _over(self, _: object) -> None:
        self.ended = True
        self.done.callback(None)


class Works:
    """What goes on, by kind and name."""

    def __init__(self) -> None:
        self._works: dict[tuple[str, str], Work] = {}

    async def ask(self, kind: str, name: str, begin: Begin, wait_s: float, clock: Any) -> dict[str, Any]:
        """How it stands once it has ended, or after `wait_s`. Raises what it failed with, once, and InvalidRequest."""
        if not 0 <= wait_s <= LONGEST_WAIT_S:
            raise InvalidRequest(f"--wait is a number of seconds from 0 to {LONGEST_WAIT_S}.")
        work = self._works.get((kind, name)) or Work(begin)
        self._works[kind, name] = work
        if not work.ended:
            await at_most(work.done, wait_s, clock)
        if work.ended:
            self._works.pop((kind, name), None)
        if work.error is not None:
            raise work.error
        return {kind: name, "ended": work.ended, "detail": work.detail, "progress": round(work.progress, 3)}
