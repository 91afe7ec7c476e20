"""A Frame around a message, encoded without copying the message into one."""

from __future__ import annotations

from typing import Any

from iop.link.errors import LocalProtocolError
from iop.proto.link_pb2 import Frame

_KINDS = {field.name: field for field in Frame.DESCRIPTOR.oneofs_by_name["kind"].fields}
KINDS = tuple(_KINDS)
_TYPES = {kind: type(getattr(Frame(), kind)) for kind in KINDS}


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_TAGS = {kind: _varint(field.number << 3 | 2) for kind, field in _KINDS.items()}


def pack(kind: str, message: Any) -> bytes:
    """The encoded Frame of a message."""
    if message.__class__ is not _TYPES[kind]:
        raise LocalProtocolError(f"A frame of kind {kind} cannot hold a {type(message).__name__}.")
    return framed(kind, message.SerializeToString())


def framed(kind: str, packed: bytes) -> bytes:
    """The encoded Frame around an encoded message."""
    return _TAGS[kind] + _varint(len(packed)) + packed
