"""Batches as history stores them: deflated, where that pays. Chunks of one stream differ in little but their text.

A stored batch says by its first byte which it is. zlib's is 0x78 (RFC 1950, section 2.2); as the first of an encoded Frame
it would be a varint in field 15, which is none there.
"""

from __future__ import annotations

import zlib

LEVEL = 1                            # 2 ns a byte of a stream, a fifteenth of which is left; to write a byte costs 4 ns
SMALLEST_BYTES = 2048                # below, it costs more than it saves
SAMPLE_BYTES = 8192                  # what does not shrink (images, sound, as base64 too) costs 30 ns a byte to find out
WORTH = 0.7                          # of its size, at most
_MARK = b"\x78"


def shrunk(packed: bytes) -> bytes:
    """As it is stored."""
    if not packed.startswith(_MARK) and (len(packed) < SMALLEST_BYTES or not _worth(packed[:SAMPLE_BYTES])):
        return packed
    return zlib.compress(packed, LEVEL)


def whole(stored: bytes) -> bytes:
    """As it was given."""
    return zlib.decompress(stored) if stored.startswith(_MARK) else stored


def _worth(sample: bytes) -> bool:
    return len(zlib.compress(sample, LEVEL)) < WORTH * len(sample)
