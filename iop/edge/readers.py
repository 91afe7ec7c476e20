"""Sources of streams: a run's log or the edge's life, read at the pace of one client."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from iop.edge.dialects import life_sse, management_sse
from iop.interfaces import IEdgeService, IRunCursor
from iop.proto import node_pb2
from iop.web.sse import COMMENT

LIVE_EVENTS = 1000       # kept for a reader of lifecycle events; one who lags more reads the history again
PAGE_EVENTS = 500


class RunReader:
    """The events of a run as management SSE."""

    heartbeat = COMMENT

    def __init__(self, cursor: IRunCursor) -> None:
        self._cursor = cursor
        self.ended = False

    def take(self, limit_bytes: int) -> list[bytes] | Deferred[list[bytes]]:
        taken = self._cursor.take(limit_bytes)
        return self._formatted(taken) if isinstance(taken, list) else taken.addCallback(self._formatted)

    def _formatted(self, entries: list[Any]) -> list[bytes]:
        self.ended = self._cursor.ended
        return [management_sse(entry) for entry in entries]

    def notify(self, callback: Callable[[], object]) -> None:
        self._cursor.notify(callback)

    def close(self) -> None:
        self._cursor.close()


class LifeReader:
    """The edge's lifecycle events as SSE, behind an event id (None: only what comes from now on)."""

    heartbeat = COMMENT
    ended = False

    def __init__(self, edge: IEdgeService, after: int | None) -> None:
        self._edge = edge
        self._after = after or 0
        self._behind = after is not None     # whether history has to be read first
        self._dropped = False                # whether live events were let go while a page was read
        self._live: deque[node_pb2.EdgeNodeEvent] = deque()
        self._callback: Callable[[], object] = lambda: None
        self._end_watch = edge.watch(self._happened)

    def _happened(self, event: node_pb2.EdgeNodeEvent) -> None:
        self._live.append(event)
        if len(self._live) > LIVE_EVENTS:
            self._let_go()
        self._callback()

    def _let_go(self) -> None:
        """The reader lags: what is queued is let go, and read from the history when it comes to it."""
        if not self._behind:
            self._after = max(self._after, self._live[0].event_id - 1)
        self._live.clear()
        self._behind = self._dropped = True

    def take(self, limit_bytes: int) -> list[bytes] | Deferred[list[bytes]]:
        if self._behind:
            self._dropped = False        # what was dropped until now stands in the page that is read now
            return self._edge.events(self._after, PAGE_EVENTS).addCallback(self._page)
        events = []
        while self._live and len(events) < PAGE_EVENTS:
            events.append(self._live.popleft())
        return self._told(events)

    def _page(self, events: list[node_pb2.EdgeNodeEvent]) -> list[bytes]:
        self._behind, self._dropped = len(events) == PAGE_EVENTS or self._dropped, False
        told = self._told(events)
        if not self._behind:     # what came meanwhile stands in the live queue; what was in the page as well is left out
            told += self._told(list(self._live))
            self._live.clear()
        return told

    def _told(self, events: list[node_pb2.EdgeNodeEvent]) -> list[bytes]:
        told = [life_sse(event) for event in events if event.event_id > self._after]
        if events:
            self._after = max(self._after, events[-1].event_id)
        return told

    def notify(self, callback: Callable[[], object]) -> None:
        self._callback = callback

    def close(self) -> None:
        self._end_watch()
        self._callback = lambda: None
