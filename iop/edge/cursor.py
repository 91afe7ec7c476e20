"""A reader's place in a run: behind the floor of its log it catches up from history in pages, else it reads the tail.

Both are decided in one reactor turn, so nothing can slip between them. A reader is never led over a hole in history without
a gap that tells of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import implementer

from iop.edge.gaps import gap_batch, unannounced
from iop.edge.packing import pack, unpack
from iop.edge.runlog import Entry, RunLog
from iop.interfaces import IRunCursor
from iop.runs import EventId

PAGE_BYTES = 256 * 1024          # of one catch-up from history: 1 to 10 ms of decoding

log = Logger()


@implementer(IRunCursor)
class RunCursor:
    """A reader's place. Holds nothing but the place: the entries are the log's, or a page's while it is taken."""

    def __init__(self, run_id: str, after: EventId, history: Any, live: RunLog | None) -> None:
        self.run_id = run_id
        self.after = after
        self.ended = False
        self._history = history
        self._live = live
        self._position: int | None = None    # in the live tail, once there
        self._callback: Callable[[], object] | None = None
        self._exact = True                   # the next entry may begin (even end) at or before `after`, as when a reader
                                             # has seen what an edge that died had not committed
        if live is not None:
            live.readers.add(self._told)

    def take(self, limit_bytes: int) -> list[Entry] | Deferred[list[Entry]]:
        if self.ended:
            return []
        live = self._live
        if live is None:
            return self._page(limit_bytes)
        position = self._position
        if position is None or self._exact or position < live.oldest:
            if self.after < live.floor:
                return self._page(limit_bytes)
            position = live.position(self.after)
            self._exact = True
        while entries := live.read(position, limit_bytes):
            self._position = position = position + len(entries)
            if passed := self._pass(entries):    # else the reader has seen all of these: further on
                return passed
        self.ended = live.over                   # it stands behind all there is
        return entries

    def _page(self, limit_bytes: int) -> Deferred[list[Entry]]:
        self._exact = True
        page: Deferred[list[bytes]] = self._history.batches(self.run_id, self.after, min(limit_bytes, PAGE_BYTES))
        return page.addCallback(self._page_read)

    def _page_read(self, packed: list[bytes]) -> list[Entry]:
        self._position = None
        if packed:
            return self._pass(self._announced([Entry(unpack(item), item) for item in packed]))
        live = self._live
        if live is None:
            self.ended = True            # of a run that has ended, that is all
            return []
        if self.after < live.floor:      # history had all below the floor, and has lost it
            return self._pass([self._gap(live.floor, self.after.seq + 1 if self.after.attempt == live.floor.attempt else 1)])
        return []

    def _announced(self, entries: list[Entry]) -> list[Entry]:
        """With a gap in each place where a page has a hole that no gap tells of."""
        told, place = [], self.after
        for entry in entries:
            first = unannounced(entry.batch, place)
            if first:
                told.append(self._gap(EventId(entry.attempt, entry.first_seq - 1), first))
            told.append(entry)
            place = max(place, entry.last)
        return told

    def _gap(self, last: EventId, first_seq: int) -> Entry:
        batch = gap_batch(self.run_id, last, first_seq, "history does not have them any more")
        return Entry(batch, pack(batch))

    def _pass(self, entries: list[Entry]) -> list[Entry]:
        """Move behind `entries`; what the reader has seen of them already is cut off (only the first ones can be)."""
        if self._exact:
            entries = [rest for entry in entries if (rest := entry.after(self.after)) is not None]
            if not entries:
                return entries
            self._exact = False
        self.after = entries[-1].last
        self.ended = entries[-1].ends
        return entries

    def notify(self, callback: Callable[[], object]) -> None:
        self._callback = callback

    def _told(self) -> None:
        if self._callback is None:
            return
        try:
            self._callback()
        except Exception:
            log.failure("a reader of run {run_id} failed; it is let go", run_id=self.run_id)
            self.close()

    def close(self) -> None:
        self._callback = None
        if self._live is not None:
            self._live.readers.discard(self._told)
