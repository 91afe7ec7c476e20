"""The journal of one program: what its supervisor read from it, in files that outlive whoever reads them.

::

    <folder>/journal.<offset as 16 hex digits>     one segment; the offset is that of its first record
    record = length u32 | crc32 u32 | kind u8 | payload       big endian; the crc covers kind and payload

An offset counts the bytes of all records since the first, so that a place stays the same when older segments go. Every
segment begins with a HEAD, which tells whose journal it is. Standard library only: the supervisor writes, the node reads.
"""

from __future__ import annotations

import json
import os
import re
import struct
import zlib
from collections import deque
from typing import Any, NamedTuple

HEAD, STARTED, STDOUT, STDERR, EXITED, ENDED = range(1, 7)

SEGMENT_BYTES = 4 * 1024 * 1024      # a segment is closed once it is larger, and goes as a whole
PAYLOAD_BYTES = 1024 * 1024          # more than any record: a larger one is damage
PREFIX = "journal."
_FRAME = struct.Struct("!IIB")
_SEGMENT = re.compile(re.escape(PREFIX) + r"([0-9a-f]{16})")    # anything else in the folder is not ours

_NUMBER, _NUMBER_OR_NONE = (int,), (int, type(None))
FIELDS: dict[int, dict[str, tuple[type, ...]]] = {
    HEAD: {"pid": _NUMBER, "ticks": _NUMBER, "boot": (str,), "child": _NUMBER, "child_ticks": _NUMBER},
    STARTED: {"child": _NUMBER, "child_ticks": _NUMBER},
    EXITED: {"exit_code": _NUMBER_OR_NONE, "signal": _NUMBER_OR_NONE},
    ENDED: {"error": (str,), "steps": (list,), "processes_left": _NUMBER, "exit_code": _NUMBER_OR_NONE,
            "signal": _NUMBER_OR_NONE}}


class Damaged(Exception):
    """A record that stands whole in the journal is not what was written."""


class Record(NamedTuple):
    """One record; `offset` is the place behind it."""

    kind: int
    payload: bytes
    offset: int

    def fields(self) -> dict[str, Any]:
        """What a HEAD, STARTED, EXITED or ENDED says. Raises Damaged: a program can write there too, checksum and all."""
        try:
            told = json.loads(self.payload)
        except (ValueError, RecursionError):
            told = None
        wanted = FIELDS[self.kind]
        if not isinstance(told, dict) or not all(isinstance(told.get(name, wanted), types) for name, types in wanted.items()):
            raise Damaged(f"The record before {self.offset} of the journal says nothing.")
        return told


def packed(kind: int, payload: bytes) -> bytes:
    return _FRAME.pack(len(payload), zlib.crc32(payload, zlib.crc32(bytes((kind,)))), kind) + payload


def records(data: bytes, offset: int) -> list[Record]:
    """The whole records at the beginning of `data`, which stands at `offset`. Raises Damaged when the first is damaged."""
    found: list[Record] = []
    at = 0
    while at + _FRAME.size <= len(data):
        length, crc, kind = _FRAME.unpack_from(data, at)
        behind = at + _FRAME.size + length
        if length <= PAYLOAD_BYTES and behind > len(data):
            break
        payload = data[at + _FRAME.size:behind]
        if length > PAYLOAD_BYTES or zlib.crc32(payload, zlib.crc32(bytes((kind,)))) != crc:
            if found:
                break                        # told when it is the first
            raise Damaged(f"The record at {offset + at} of the journal is damaged.")
        found.append(Record(kind, payload, offset + behind))
        at = behind
    return found


def joined(found: list[Record]) -> list[Record]:
    """Output of one channel in a row as one record: what a program says in small pieces is told in one."""
    joined: list[Record] = []
    row: list[bytes] = []
    for record in found:
        if joined and record.kind in (STDOUT, STDERR) and record.kind == joined[-1].kind:
            row.append(record.payload)
            joined[-1] = record
            continue
        _close_row(joined, row)
        joined.append(record)
        row = [record.payload]
    _close_row(joined, row)
    return joined


def _close_row(joined: list[Record], row: list[bytes]) -> None:
    if len(row) > 1:
        joined[-1] = joined[-1]._replace(payload=b"".join(row))


def segments(folder: str | int) -> list[int]:
    """The offsets at which the segments of a folder begin, in order."""
    return sorted(int(match[1], 16) for match in map(_SEGMENT.fullmatch, os.listdir(folder)) if match is not None)


class Writer:
    """The supervisor's side. What the disk does not take waits in memory; `flush` tries again."""

    def __init__(self, folder: int, head: dict[str, Any], segment_bytes: int = SEGMENT_BYTES) -> None:
        self.head = head                     # may change: the next segment begins with it as it is then
        self.end = 0                         # behind the last byte that is in the files
        self.kept = 0                        # up to here nobody needs it
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._segment = -1
        self._starts: deque[int] = deque()
        self._queue: deque[bytes] = deque()
        self._torn = False                   # the last record in the file is not whole yet

    @property
    def waiting(self) -> bool:
        """The disk has not taken all."""
        return bool(self._queue)

    def begin(self) -> None:
        """The first segment, so that whoever finds the folder knows whose it is."""
        try:
            self._roll()
        except OSError:                      # with the first record, then
            return
        self.flush()

    def append(self, kind: int, payload: bytes) -> None:
        self._queue.append(packed(kind, payload))
        if len(self._queue) == 1:
            self.flush()

    def flush(self) -> bool:
        """Write what waits; whether nothing waits any more."""
        try:
            while self._queue:
                if not self._torn:
                    self._roll()
                written = os.write(self._segment, self._queue[0])
                self.end += written
                self._torn = written < len(self._queue[0])
                if self._torn:
                    self._queue[0] = self._queue[0][written:]
                else:
                    self._queue.popleft()
        except OSError:                      # a full disk, mostly
            return False
        return True

    def forget(self, offset: int) -> None:
        """Nobody needs what stands before `offset`; whole segments of it go."""
        self.kept = max(self.kept, min(offset, self.end))
        while len(self._starts) > 1 and self._starts[1] <= self.kept:
            try:
                os.unlink(_name(self._starts[0]), dir_fd=self._folder)
            except OSError:                  # the whole folder goes later
                pass
            self._starts.popleft()

    def _roll(self) -> None:
        """Begin a segment where the last one is full."""
        if self._starts and self.end - self._starts[-1] < self._segment_bytes:
            return
        descriptor = os.open(_name(self.end), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600,
                             dir_fd=self._folder)
        if self._segment >= 0:
            os.close(self._segment)
        self._segment = descriptor
        self._starts.append(self.end)
        self._queue.appendleft(packed(HEAD, json.dumps(self.head).encode()))


class Reader:
    """The node's side: records behind `offset`, of a journal that may still grow."""

    def __init__(self, folder: str, offset: int = 0) -> None:
        self.offset = offset
        self._folder = folder
        self._segment = -1
        self._start = 0

    def read(self, limit_bytes: int) -> list[Record]:
        """The next whole records, about `limit_bytes` of them; none when there is nothing whole now.

        Raises Damaged, also when what stood at the offset has gone, and OSError.
        """
        if self._segment < 0 and not self._open():
            return []
        while True:
            data = os.pread(self._segment, limit_bytes, self.offset - self._start)
            found = records(data, self.offset)
            if not found and len(data) == limit_bytes:
                limit_bytes *= 2             # one record that is larger
            elif found or data or not self._next():
                break
        if found:
            self.offset = found[-1].offset
        return found

    def close(self) -> None:
        if self._segment >= 0:
            os.close(self._segment)
            self._segment = -1

    def _open(self) -> bool:
        starts = segments(self._folder)
        before = [start for start in starts if start <= self.offset]
        if not before:
            if starts:
                raise Damaged(f"The journal begins at {starts[0]}; what stood at {self.offset} has gone.")
            return False
        self._start = before[-1]
        self._segment = os.open(os.path.join(self._folder, _name(self._start)), os.O_RDONLY | os.O_CLOEXEC)
        return True

    def _next(self) -> bool:
        """Go on in the next segment, when this one has been read to its end and there is another."""
        if self._start == self.offset:
            return False
        try:
            following = os.open(os.path.join(self._folder, _name(self.offset)), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        self.close()
        self._segment, self._start = following, self.offset
        return True


def identity(folder: str) -> dict[str, Any]:
    """Whose journal it is: pid, ticks, boot of the supervisor, child and child_ticks (0: not started); {} for none."""
    try:
        starts = segments(folder)
        if not starts:
            return {}
        with open(os.path.join(folder, _name(starts[0])), "rb") as stream:
            first = records(stream.read(4096), starts[0])
        known: dict[str, Any] = {}
        for record in first[:2]:
            if record.kind in (HEAD, STARTED):
                known.update(record.fields())
        return known
    except (OSError, Damaged, ValueError):
        return {}


def ending(folder: str) -> dict[str, Any]:
    """What the ENDED record says; {} where there is none that can be read."""
    try:
        start = segments(folder)[-1]
        with open(os.path.join(folder, _name(start)), "rb") as stream:
            last = records(stream.read(), start)[-1]
        return last.fields() if last.kind == ENDED else {}
    except (OSError, Damaged, IndexError):
        return {}


def _name(offset: int) -> str:
    return f"{PREFIX}{offset:016x}"
