"""Lifecycle events: durable first, then told. Runs, links, configurations and operations; never in a run's numbering."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger

from iop.errors import HistoryUnavailable, InvalidRequest
from iop.events import json_encode, now_us
from iop.proto.node_pb2 import EdgeNodeEvent
from iop.proto.run_pb2 import Source

AGAIN_S = 1.0                    # between two tries while history cannot be written
MAX_LIFE_ID = 2 ** 63 - 1        # of an event_id: what a database's integer holds
MAX_WAITING = 10_000             # events that wait for history; beyond, the oldest are let go

EDGE = Source(face="edge", principal="edge")

log = Logger()


class Bus:
    """Every lifecycle event of one edge."""

    def __init__(self, history: Any, clock: Any) -> None:
        self._history = history
        self._clock = clock
        self._watchers: list[Callable[[EdgeNodeEvent], object]] = []
        self._waiting: list[EdgeNodeEvent] = []
        self._again: Any = None

    def tell(self, kind: str, *, node_id: str = "", run_id: str = "", source: Source | None = None, **detail: Any) -> None:
        """Something happened. Watchers hear of it once history has it."""
        event = EdgeNodeEvent(at_us=now_us(), kind=kind, node_id=node_id, run_id=run_id, source=source or EDGE,
                              detail=json_encode(detail) if detail else b"")
        self._store(event)

    def _store(self, event: EdgeNodeEvent) -> None:
        done: Deferred[int] = self._history.append_event(event)
        done.addCallbacks(self._stored, self._failed, callbackArgs=(event,), errbackArgs=(event,))

    def _stored(self, event_id: int, event: EdgeNodeEvent) -> None:
        event.event_id = event_id
        for watcher in tuple(self._watchers):
            try:
                watcher(event)
            except Exception:
                log.failure("a watcher of lifecycle events failed; it is let go")
                self._unwatch(watcher)

    def _failed(self, failure: Any, event: EdgeNodeEvent) -> None:
        if not failure.check(HistoryUnavailable):
            log.failure("history did not take the event {kind}", failure, kind=event.kind)
        self._waiting.append(event)
        if len(self._waiting) > MAX_WAITING:
            lost = self._waiting.pop(0)
            log.error("the event {kind} of {node_id}{run_id} is lost: too many wait for history", kind=lost.kind,
                      node_id=lost.node_id, run_id=lost.run_id)
        if self._again is None:
            self._again = self._clock.callLater(AGAIN_S, self._retry)

    def _retry(self) -> None:
        self._again = None
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            self._store(event)

    def events(self, after: int | None, limit: int) -> Deferred[list[EdgeNodeEvent]]:
        """Events behind an event_id, in order; with after None, the latest `limit`. Fails with InvalidRequest."""
        if after is not None and not 0 <= after <= MAX_LIFE_ID:
            return fail(InvalidRequest(f"{after} is not the id of a lifecycle event."))
        found: Deferred[list[EdgeNodeEvent]] = self._history.events(after, limit)
        return found

    def watch(self, callback: Callable[[EdgeNodeEvent], object]) -> Callable[[], None]:
        """Have `callback(event)` called for each new event, in order; returns what ends it."""
        self._watchers.append(callback)
        return lambda: self._unwatch(callback)

    def _unwatch(self, callback: Callable[[EdgeNodeEvent], object]) -> None:
        if callback in self._watchers:
            self._watchers.remove(callback)

    def stop(self) -> None:
        """Try no more."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
