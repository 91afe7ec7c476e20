"""Batches go to the database smaller than they came, and come back as they were."""

from __future__ import annotations

import os

import pytest

from iop.proto.link_pb2 import Frame
from iop.store.shrinking import SMALLEST_BYTES, shrunk, whole

STREAM = b"".join(b'{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"%d"}}]}' % number for number in range(500))


@pytest.mark.parametrize("packed", [b"", b"\x0a", b"\x78", b"\x78" * 9, STREAM[:100], STREAM, os.urandom(9000)])
def test_what_was_stored_comes_back_byte_for_byte(packed: bytes) -> None:
    assert whole(shrunk(packed)) == packed


def test_a_stream_takes_a_small_part_of_its_bytes() -> None:
    assert len(shrunk(STREAM)) < len(STREAM) / 8


def test_what_is_small_or_does_not_shrink_is_stored_as_it_is() -> None:
    noise = os.urandom(100_000)
    assert shrunk(noise) is noise
    assert shrunk(STREAM[:SMALLEST_BYTES - 1]) == STREAM[:SMALLEST_BYTES - 1]


def test_no_frame_begins_like_a_deflated_one() -> None:
    field = Frame.DESCRIPTOR.fields_by_number[0x78 >> 3]
    assert field.type == field.TYPE_FIXED32, "a varint would begin with 0x78"
