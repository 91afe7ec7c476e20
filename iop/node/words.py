"""The words between a node and a supervisor, on a unix socket. Standard library only: both sides use it.

::

    node --> REQUEST, INPUT ..., GO          the program starts at GO; an end of the connection before it: nothing starts
    node --> INPUT, CLOSE_INPUT, STOP, KILL, KEPT                     supervisor --> GREW ... (end of the connection: gone)

    word = length u32 | kind u8 | payload     big endian. Output is not spoken of here: the node reads the journal.
"""

from __future__ import annotations

import json
import struct
from typing import Any

REQUEST, INPUT, CLOSE_INPUT, GO, STOP, KILL, KEPT, GREW = range(1, 9)

PLACE = struct.Struct("!Q")         # the payload of KEPT and GREW: an offset of the journal
LONGEST_BYTES = 64 * 1024 * 1024    # more than any word
_HEADER = struct.Struct("!IB")
_REQUESTED = {"run_id": str, "argv": list, "cwd": str, "env": dict, "null": bool, "int_s": float | int, "term_s": float | int}


class Strange(Exception):
    """It was not our node (or supervisor) that said this."""


def word(kind: int, payload: bytes = b"") -> bytes:
    return _HEADER.pack(len(payload), kind) + payload


def requested(payload: bytes) -> dict[str, Any]:
    """What a REQUEST says. Raises Strange."""
    try:
        request = json.loads(payload)
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict) or not all(isinstance(request.get(name), kind) for name, kind in _REQUESTED.items()):
        raise Strange
    return request


class Words:
    """Words out of a stream that is cut anywhere."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """[(kind, payload)] that are whole now. Raises Strange."""
        self._buffer += data
        found: list[tuple[int, bytes]] = []
        at = 0
        while at + _HEADER.size <= len(self._buffer):
            length, kind = _HEADER.unpack_from(self._buffer, at)
            behind = at + _HEADER.size + length
            if length > LONGEST_BYTES or (kind in (KEPT, GREW) and length != PLACE.size):
                raise Strange
            if behind > len(self._buffer):
                break
            found.append((kind, bytes(self._buffer[at + _HEADER.size:behind])))
            at = behind
        del self._buffer[:at]
        return found
