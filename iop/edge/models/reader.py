"""How the log of a run is read for its tellers: to the end for an answer in one piece, or bit by bit for a stream's pump."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail

from iop.edge.models.teller import StreamTeller, beat
from iop.errors import IOPError, OutputLimit
from iop.interfaces import IRunCursor

TAKE_BYTES = 256 * 1024
WHOLE_BYTES = 32 * 1024 * 1024   # of an answer in one piece: it stands in memory a few times, and is encoded in one turn


async def take(cursor: IRunCursor) -> list[Any]:
    """The entries that a cursor has now; of a run that has ended never none before its end."""
    found = cursor.take(TAKE_BYTES)
    entries: list[Any] = await found if isinstance(found, Deferred) else found
    return entries


def too_large(hint: str) -> OutputLimit:
    """For an answer of more than WHOLE_BYTES; `hint` says how it can be had all the same."""
    return OutputLimit(f"The answer has more than {WHOLE_BYTES >> 20} MiB, which is the limit of one in one piece.",
                       hint=hint)


class ModelReader:
    """The rest of a stream, for the pump."""

    def __init__(self, cursor: IRunCursor, teller: StreamTeller, first: list[bytes], abandon: Callable[[], object]) -> None:
        self._cursor = cursor
        self._teller = teller
        self._first = first
        self._abandon = abandon
        self.ended = False

    @property
    def heartbeat(self) -> bytes:
        return beat(self._teller)

    def take(self, limit_bytes: int) -> list[bytes] | Deferred[list[bytes]]:
        if self._first:
            first, self._first = self._first, []
            self.ended = self._cursor.ended
            return first
        taken = self._cursor.take(limit_bytes)
        if not isinstance(taken, list):
            return taken.addCallback(self._formatted)
        try:
            return self._formatted(taken) if taken or self._cursor.ended else []
        except IOPError as error:        # what its teller cannot tell any more: the connection breaks
            return fail(error)

    def _formatted(self, entries: list[Any]) -> list[bytes]:
        told = [self._teller.write(entry) for entry in entries]
        self.ended = self._cursor.ended
        if self.ended:
            told.append(self._teller.end())
        return told

    def notify(self, callback: Callable[[], object]) -> None:
        self._cursor.notify(callback)

    def close(self) -> None:
        self._abandon()
