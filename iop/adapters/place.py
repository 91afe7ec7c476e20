"""Where a run of a program stands in the journal of its supervisor: what the cli adapter saves beside its events. Pure."""

from __future__ import annotations

import struct
from typing import NamedTuple

_FIXED = struct.Struct("!B?QBB")
VERSION = 1


class Place(NamedTuple):
    """`offset` of the journal, whether the start was told, and the bytes of characters that are not whole yet."""

    offset: int = 0
    started: bool = False
    stdout: bytes = b""
    stderr: bytes = b""

    def packed(self) -> bytes:
        return (_FIXED.pack(VERSION, self.started, self.offset, len(self.stdout), len(self.stderr))
                + self.stdout + self.stderr)

    @classmethod
    def of(cls, mark: bytes) -> Place:
        """The place that a mark tells; the beginning for b"". Raises ValueError for what this version did not write."""
        if not mark:
            return cls()
        if len(mark) < _FIXED.size or mark[0] != VERSION:
            raise ValueError("not a place in a journal")
        _, started, offset, stdout, stderr = _FIXED.unpack_from(mark)
        tails = mark[_FIXED.size:]
        if len(tails) != stdout + stderr:
            raise ValueError("not a place in a journal")
        return cls(offset, started, tails[:stdout], tails[stdout:])
