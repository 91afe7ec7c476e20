"""Events that the edge has not acknowledged, and the windows that bound them.

In memory: a node that is killed loses them, and the edge ends those runs as node_restarted. A run above its window, and
every run while all of them are above the link's, is paused; it goes on at half.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

from iop.proto.run_pb2 import EventBatch

Key = tuple[str, int]  # run_id, attempt

RUN_WINDOW_BYTES = 1024 * 1024        # until a Welcome says otherwise
LINK_WINDOW_BYTES = 8 * 1024 * 1024
FORGOTTEN = 1 << 64                   # above every sequence number


class Pausable(Protocol):
    """What a window holds back: a Run."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Box:
    """The batches of one attempt, oldest first."""

    __slots__ = ("batches", "last_seq", "open", "paused", "run", "size")

    def __init__(self, run: Pausable) -> None:
        self.run = run
        self.batches: deque[tuple[int, int, EventBatch]] = deque()  # last sequence number, bytes, batch
        self.size = 0
        self.last_seq = 0
        self.open = True
        self.paused = False

    @property
    def first_unacked(self) -> int:
        return self.batches[0][2].first_seq if self.batches else self.last_seq + 1


class Outbox:
    """All un-acknowledged events of this node."""

    def __init__(self, run_window_bytes: int = RUN_WINDOW_BYTES, link_window_bytes: int = LINK_WINDOW_BYTES) -> None:
        self._run_window = run_window_bytes
        self._link_window = link_window_bytes
        self._boxes: dict[Key, Box] = {}
        self._size = 0
        self._full = False

    def set_windows(self, run_window_bytes: int, link_window_bytes: int) -> None:
        """The edge's word, in its Welcome; 0 leaves a window as it is."""
        self._run_window = run_window_bytes or self._run_window
        self._link_window = link_window_bytes or self._link_window
        for box in self._boxes.values():
            self._weigh(box)

    def open(self, run_id: str, attempt: int, run: Pausable) -> None:
        """Make room for an attempt, before its first event."""
        self._boxes[run_id, attempt] = box = Box(run)
        self._weigh(box)

    def append(self, batch: EventBatch) -> None:
        """Keep a batch until it is acknowledged. The attempt's last one is followed by `ended`."""
        box = self._boxes.get((batch.run_id, batch.attempt))
        if box is None:
            return
        size = batch.ByteSize()
        box.last_seq = batch.first_seq + len(batch.events) - 1
        box.batches.append((box.last_seq, size, batch))
        box.size += size
        self._size += size
        self._weigh(box)
        self._weigh_link()

    def ended(self, run_id: str, attempt: int) -> None:
        """Nothing more comes of this attempt; it is forgotten once all is acknowledged."""
        box = self._boxes.get((run_id, attempt))
        if box is not None:
            box.open = False
            self._forget_if_done((run_id, attempt), box)

    def acknowledged(self, run_id: str, attempt: int, through_seq: int) -> None:
        """The edge's history has these."""
        key = run_id, attempt
        box = self._boxes.get(key)
        if box is None:
            return
        while box.batches and box.batches[0][0] <= through_seq:
            _, size, _ = box.batches.popleft()
            box.size -= size
            self._size -= size
        self._forget_if_done(key, box)
        self._weigh(box)
        self._weigh_link()

    def drop(self, run_id: str, attempt: int) -> None:
        """Forget an attempt, events and all: the edge does not want them."""
        box = self._boxes.pop((run_id, attempt), None)
        if box is not None:
            self._size -= box.size
            self._weigh_link()

    def pending_from(self, run_id: str, attempt: int, seq: int) -> list[EventBatch]:
        """The batches that hold `seq` and what follows it; the first may begin before it."""
        box = self._boxes.get((run_id, attempt))
        return [batch for last_seq, _, batch in box.batches if last_seq >= seq] if box is not None else []

    def first_unacked(self, run_id: str, attempt: int) -> int:
        """The earliest event that can still be sent; behind all of them where the attempt is forgotten."""
        box = self._boxes.get((run_id, attempt))
        return box.first_unacked if box is not None else FORGOTTEN

    def last_seq(self, run_id: str, attempt: int) -> int:
        """The latest event; behind all of them where the attempt is forgotten: it may be acknowledged twice."""
        box = self._boxes.get((run_id, attempt))
        return box.last_seq if box is not None else FORGOTTEN

    def boxes(self) -> Iterator[tuple[Key, Box]]:
        """Every attempt that is open or not wholly acknowledged."""
        return iter(list(self._boxes.items()))

    def __contains__(self, key: Key) -> bool:
        return key in self._boxes

    def __len__(self) -> int:
        return len(self._boxes)

    @property
    def size_bytes(self) -> int:
        return self._size

    def _forget_if_done(self, key: Key, box: Box) -> None:
        if not box.open and not box.batches:
            self._boxes.pop(key, None)

    def _weigh(self, box: Box) -> None:
        """Pause or resume one run; at half, so that it does not flutter."""
        over = self._full or box.size > (self._run_window // 2 if box.paused else self._run_window)
        if over and not box.paused:
            box.paused = True
            box.run.pause()
        elif box.paused and not over:
            box.paused = False
            box.run.resume()

    def _weigh_link(self) -> None:
        full = self._size > (self._link_window // 2 if self._full else self._link_window)
        if full != self._full:
            self._full = full
            for box in list(self._boxes.values()):
                self._weigh(box)
