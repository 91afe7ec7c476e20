"""A log on disk that only grows at its end, in segment files that go one by one. It knows nothing of what it holds.

::

    <folder>/00000000000000a7.5f02c9d1            the number of the segment, and the word that each of its records begins with
        | word 4 | length 4 | crc32 of the payload 4 | crc32 of these twelve 4 | payload | word ...
    <folder>/00000000000000a6.0c3be17a.damaged    one that was put aside

A record whose end the file does not reach was being written when the process died: it is dropped. What does not check and
is whole in length is damage, also at the end: a process that dies leaves no such thing. What stands behind damage is found
again by the word, which is random, so that no payload can pretend to be a record.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import struct
from collections.abc import Iterator, Sequence
from zlib import crc32

SEGMENT_BYTES = 8 * 1024 * 1024
RECORD_BYTES = 256 * 1024 * 1024     # a length above this is no length

_HEAD = struct.Struct("!4sII")
_CHECK = struct.Struct("!I")
HEAD_BYTES = _HEAD.size + _CHECK.size
_NAME = re.compile(r"([0-9a-f]{16})\.([0-9a-f]{8})")


class Segment:
    """One file. How much of it is still wanted is counted by whoever wants it."""

    __slots__ = ("batches", "damaged", "gone", "path", "places", "size", "word")

    def __init__(self, path: str, word: bytes, size: int = 0) -> None:
        self.path = path
        self.word = word
        self.size = size
        self.damaged = False
        self.gone = False
        self.batches = 0         # un-acknowledged
        self.places = 0          # attempts whose latest entry stands here


class SegmentLog:
    """All segments of one folder, of which the newest grows. A log that is opened again begins a new one."""

    def __init__(self, folder: str, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.current: Segment | None = None
        self.size_bytes = 0
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._descriptor = -1
        self._number = 0
        self._worn = False

    def read(self) -> Iterator[tuple[Segment, bytes | None]]:
        """(segment, payload) of every record, oldest first; None where something is damaged. Once, before any append.

        A segment that holds none was begun just before a death, on a full disk mostly: it is removed.
        """
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        for name in sorted(os.listdir(self._folder)):
            match = _NAME.match(name)
            if match is not None:
                self._number = max(self._number, int(match[1], 16))
            path = os.path.join(self._folder, name)
            if match is None or match[0] != name or not os.path.isfile(path):
                continue
            with open(path, "rb") as stream:
                data = stream.read()
            segment = Segment(path, bytes.fromhex(match[2]), len(data))
            self.size_bytes += segment.size
            holds_none = True
            for payload in records(data, segment.word):
                holds_none = False
                yield segment, payload
            if holds_none:
                self.remove(segment)

    def append(self, payloads: Sequence[bytes], *, may_begin: bool = True) -> Segment:
        """Write them behind one another, in one write; raises OSError, and then none of them is there.

        `may_begin`: in a new segment, where the newest is full.
        """
        segment = self.current
        if segment is None or (may_begin and segment.size >= self._segment_bytes) or self._worn:
            segment = self._begin()
        word, parts = segment.word, []
        for payload in payloads:
            head = _HEAD.pack(word, len(payload), crc32(payload))
            parts += (head, _CHECK.pack(crc32(head)), payload)
        data = b"".join(parts)
        try:
            self._write(data, segment.size)
        except OSError as error:
            self._cut(segment.size)
            self._worn = error.errno == errno.EIO     # the next try is made in another place
            raise
        segment.size += len(data)
        self.size_bytes += len(data)
        return segment

    def look(self) -> None:
        """See whether somebody has deleted the newest: what is written there would end with this process."""
        self._worn = self._worn or (self._descriptor >= 0 and not os.fstat(self._descriptor).st_nlink)

    def remove(self, segment: Segment) -> None:
        """Nobody wants any of it."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(segment.path)
        self._leave(segment)

    def set_aside(self, segment: Segment) -> str:
        """Keep it as it is for a person to look at; gives its name."""
        aside = f"{segment.path}.damaged"
        os.rename(segment.path, aside)
        self._leave(segment)
        return aside

    def _leave(self, segment: Segment) -> None:
        segment.gone = True
        self.size_bytes -= segment.size

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self.current = None

    def _begin(self) -> Segment:
        word = secrets.token_bytes(4)
        path = os.path.join(self._folder, f"{self._number + 1:016x}.{word.hex()}")
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._folder, 0o700)         # deleted as well; never what it lies in, which may be a disk that is away
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = descriptor
        self._number += 1
        self._worn = False
        self.current = Segment(path, word)
        return self.current

    def _write(self, data: bytes, at: int) -> None:
        written = os.pwrite(self._descriptor, data, at)
        while written < len(data):       # the kernel took a part; the next try tells why
            written += os.pwrite(self._descriptor, memoryview(data)[written:], at + written)

    def _cut(self, size: int) -> None:
        """A part of what failed may stand there; the next write begins at the same place, and a death before that must
        find a torn record at most."""
        try:
            os.ftruncate(self._descriptor, size)
        except OSError:
            return


def records(data: bytes, word: bytes) -> Iterator[bytes | None]:
    """The payloads of one segment, in order, None for each stretch that is damaged. Pure."""
    at, size = 0, len(data)
    while at < size:
        end = _end(data, at, word)
        if end is not None and end > size:
            return                                   # torn: it was the last thing written
        if end is not None and crc32(memoryview(data)[at + HEAD_BYTES:end]) == _HEAD.unpack_from(data, at)[2]:
            yield data[at + HEAD_BYTES:end]
            at = end
            continue
        if size - at < HEAD_BYTES and _begins(data, at, word):
            return
        yield None
        at = _next(data, at + 1 if end is None else end, word)


def _begins(data: bytes, at: int, word: bytes) -> bool:
    """Whether what is left is the beginning of a record's head."""
    left = data[at:at + len(word)]
    return word.startswith(left)


def _end(data: bytes, at: int, word: bytes) -> int | None:
    """Where the record that begins at `at` ends, by its head; None where that is no head."""
    if len(data) - at < HEAD_BYTES:
        return None
    found, length, _ = _HEAD.unpack_from(data, at)
    (check,) = _CHECK.unpack_from(data, at + _HEAD.size)
    if found != word or length > RECORD_BYTES or check != crc32(data[at:at + _HEAD.size]):
        return None
    return at + HEAD_BYTES + length


def _next(data: bytes, at: int, word: bytes) -> int:
    """The next head at `at` or behind it; the end of the data when there is none."""
    while True:
        at = data.find(word, at)
        if at < 0:
            return len(data)
        if _end(data, at, word) is not None:
            return at
        at += 1
