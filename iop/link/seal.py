"""The checksum at the end of each frame, so that what a wire damaged is never taken for what was said.

TCP's own has 16 bits, and a proxy that damages bytes makes a right one anew; without ours, a flipped bit inside of a text
would be history. Peers that know none are served as before: whoever begins with a checksum has one in every frame.
"""

from __future__ import annotations

import struct
from zlib import crc32

from google.protobuf.message import DecodeError

from iop.link.errors import RemoteProtocolError
from iop.proto.link_pb2 import Frame

_TAG = bytes([Frame.DESCRIPTOR.fields_by_name["check"].number << 3 | 5])      # fixed32 (protobuf, "Encoding")
_RESIDUE = 0x2144DF1C                # the CRC-32 of anything that is followed by its own, little-endian
SEAL_BYTES = 5
DAMAGED = "damaged_frame"
_length, _check = struct.Struct("!I").pack, struct.Struct("<I").pack


def sealed(string: bytes) -> bytes:
    """An encoded Frame with its checksum and, in front, the length of both: as it goes out."""
    return b"".join((_length(len(string) + SEAL_BYTES), string, _TAG, _check(crc32(_TAG, crc32(string)))))


class Seals:
    """The checksums of what one peer sends."""

    __slots__ = ("_expected",)

    def __init__(self) -> None:
        self._expected: bool | None = None       # None until the first frame has told

    def opened(self, string: bytes) -> bytes:
        """The encoded Frame without its checksum. Raises RemoteProtocolError where that is missing or does not match."""
        if self._expected is None:
            self._expected = _has_check(string)
        if not self._expected:
            return string
        if crc32(string) != _RESIDUE:
            raise RemoteProtocolError("A frame was damaged on its way.", code=DAMAGED)
        return string[:-SEAL_BYTES]


def _has_check(string: bytes) -> bool:
    try:
        return bool(Frame.FromString(string).HasField("check"))
    except DecodeError:
        return False                             # whoever reads it will say so
