"""The log of one live run: what its readers see, in order, once. Knows nothing of nodes or HTTP.

::

     history (all that is committed)
    |=====================|
                  |-----------------------|   the tail in memory
                floor    committed       last

What is not committed is always in the tail. A reader behind the floor catches up from history first (cursor.py).

Where history has lost events (it was restored from an older copy), a `gap` event stands in their place: under the number of
the last one that is missing, and with the number of the first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from iop.edge.gaps import gap_batch, narrowed
from iop.edge.packing import MAX_EVENTS, pack
from iop.errors import IOPError
from iop.events import ENDING_KINDS
from iop.link.errors import RemoteProtocolError
from iop.proto.run_pb2 import CHANNEL_STDOUT, CHANNEL_TEXT, EventBatch
from iop.runs import EventId

_COLLECTED = frozenset((CHANNEL_TEXT, CHANNEL_STDOUT))
TEXT_CHARACTERS = 16 * 1024      # of output, kept for the history's search column
ENTRY_COST_BYTES = 512           # of an entry in memory beside its bytes; a decoded batch takes about twice its bytes


class Entry:
    """One batch in a log, shared by all its readers.

    `dialects` holds what a formatter made of it, by the formatter's name, so that each is made once for all readers.
    `last` is the id of its last event; `ends`, whether that is the run's ending.
    """

    __slots__ = ("attempt", "batch", "dialects", "ends", "first_seq", "last", "last_seq", "packed", "size")

    def __init__(self, batch: EventBatch, packed: bytes) -> None:
        events, attempt, first = batch.events, batch.attempt, batch.first_seq
        last = first + len(events) - 1
        self.attempt: int = attempt
        self.first_seq: int = first
        self.last_seq: int = last
        self.batch = batch
        self.packed = packed
        self.size = len(packed)
        self.dialects: dict[str, bytes] = {}
        self.last = EventId(attempt, last)
        self.ends: bool = events[-1].WhichOneof("kind") in ENDING_KINDS

    def after(self, place: EventId) -> Entry | None:
        """What of it stands behind `place`: itself, an entry of its own, or None."""
        if self.attempt < place.attempt or (self.attempt == place.attempt and self.last_seq <= place.seq):
            return None
        if self.attempt > place.attempt:
            return self
        if self.first_seq > place.seq:
            rest = narrowed(self.batch, place)
            return self if rest is self.batch else Entry(rest, pack(rest))
        return trimmed(self.batch, place.seq + 1)


def trimmed(batch: EventBatch, first_seq: int) -> Entry:
    """The end of a batch, from `first_seq` on."""
    rest = EventBatch(run_id=batch.run_id, attempt=batch.attempt, first_seq=first_seq,
                      events=batch.events[first_seq - batch.first_seq:])
    return Entry(rest, pack(rest))


class Hole(IOPError):
    """Events are missing before this batch; the node is asked to send from `from_seq` again."""

    code = "hole"

    def __init__(self, from_seq: int) -> None:
        super().__init__()
        self.from_seq = from_seq


class RunLog:
    """One live run's events. `dirty` is the set that collects the logs whose readers are to be told."""

    def __init__(self, run_id: str, floor: EventId, tail_bytes: int, dirty: set[RunLog]) -> None:
        self.run_id = run_id
        self.floor = floor           # the last event that is no longer (or was never) in the tail
        self.last = floor
        self.committed = floor
        self.ended = False
        self.uncommitted_bytes = 0
        self.readers: set[Callable[[], object]] = set()      # called when there is more
        self._text_left = TEXT_CHARACTERS
        self._pieces: list[str] = []
        self._tail: list[Entry] = []
        self._tail_from = 0          # how many entries were dropped before the tail
        self._committed_entries = 0  # how many entries of the tail are committed
        self._bytes = 0
        self._tail_bytes = tail_bytes
        self._dirty = dirty
        self._own: list[tuple[int, Entry]] = []      # what the edge made and history has not: (its number, entry)

    def append(self, batch: EventBatch, packed: bytes, *, own: bool = False) -> Entry | None:
        """Add a batch; None when all of it is here already. Raises Hole, and RemoteProtocolError for an impossible one.

        A batch of a higher attempt begins at 1; of what is partly here, only the rest is added. `own`: the edge made it, so
        that nobody has it again if this process dies; readers are not shown it, nor what follows, before its commit (G2).
        """
        count, first, attempt = len(batch.events), batch.first_seq, batch.attempt
        if not count or not first or count > MAX_EVENTS:
            raise RemoteProtocolError(f"A batch has 1 to {MAX_EVENTS} events and begins at 1 or later; "
                                      f"this one has {count} from {first}.", code="too_many")
        last_attempt, last_seq = self.last
        expected = last_seq + 1 if attempt == last_attempt else 1
        if first > expected:
            raise Hole(expected)
        if first + count <= expected or self.ended or attempt < last_attempt:
            return None
        entry = Entry(batch, packed) if first == expected else trimmed(batch, expected)
        self._add(entry, own)
        return entry

    def skip(self, attempt: int, through_seq: int, reason: str) -> Entry:
        """Put a gap in the place of all that is missing of `attempt` up to `through_seq`, which must be something."""
        first = self.last.seq + 1 if attempt == self.last.attempt else 1
        batch = gap_batch(self.run_id, EventId(attempt, through_seq), first, reason)
        entry = Entry(batch, pack(batch))
        self._add(entry, True)
        return entry

    def _add(self, entry: Entry, own: bool) -> None:
        if own:
            self._own.append((self._end, entry))
        self._tail.append(entry)
        self.uncommitted_bytes += entry.size
        self._bytes += 2 * entry.size + ENTRY_COST_BYTES
        self.last = entry.last
        self.ended = entry.ends
        if self._text_left:
            self._collect(entry.batch)
        if self._bytes > self._tail_bytes:
            self._drop()
        if self.readers:
            self._dirty.add(self)

    def _collect(self, batch: EventBatch) -> None:
        text = "".join([event.output for event in batch.events if event.channel in _COLLECTED])[:self._text_left]
        self._pieces.append(text)
        self._text_left -= len(text)

    def output_text(self) -> str:
        """The first 16 Ki characters of text and standard output."""
        return "".join(self._pieces)

    def commit(self, entry: Entry) -> None:
        """`entry` is in the history; called once for each, in order."""
        self.committed = entry.last
        self.uncommitted_bytes -= entry.size
        self._committed_entries += 1
        for place, (_, own) in enumerate(self._own):
            if own is entry:
                del self._own[:place + 1]
                if self.readers:
                    self._dirty.add(self)
                break
        if self._bytes > self._tail_bytes:
            self._drop()

    def _drop(self) -> None:
        """Let the oldest committed entries go until a quarter of the room is free: seldom, and many at once."""
        count, room = 0, self._tail_bytes * 3 // 4
        while count < self._committed_entries and self._bytes > room:
            self._bytes -= 2 * self._tail[count].size + ENTRY_COST_BYTES
            count += 1
        if count:
            self.floor = self._tail[count - 1].last
            del self._tail[:count]
            self._tail_from += count
            self._committed_entries -= count

    def position(self, after: EventId) -> int:
        """The number of the first entry that ends behind `after`; valid as long as it is at least `oldest`."""
        return self._tail_from + bisect_right(self._tail, (after.attempt, after.seq),
                                              key=lambda entry: (entry.attempt, entry.last_seq))

    @property
    def oldest(self) -> int:
        """The number of the tail's first entry."""
        return self._tail_from

    @property
    def _end(self) -> int:
        """The number of the entry that comes next."""
        return self._tail_from + len(self._tail)

    @property
    def over(self) -> bool:
        """It has ended, and readers may know."""
        return self.ended and not self._own

    def read(self, position: int, limit_bytes: int) -> list[Entry]:
        """Entries from `position` on, at least one when there is one to show, until `limit_bytes` is passed."""
        end = self._own[0][0] if self._own else self._end
        entries = self._tail[position - self._tail_from:max(0, end - self._tail_from)]
        if len(entries) > 1:
            size = 0
            for index, entry in enumerate(entries):
                size += entry.size
                if index and size > limit_bytes:
                    return entries[:index]
        return entries

    def tell(self) -> None:
        """Tell the readers that there is more."""
        for told in tuple(self.readers):
            told()
