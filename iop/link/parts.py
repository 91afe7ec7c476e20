"""Frames too large for one string: cut into Parts, and joined again within bounds. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from iop.link.errors import RemoteProtocolError
from iop.link.limits import TRANSFERS
from iop.proto.link_pb2 import Part


def split(packed: bytes, transfer_id: int, part_bytes: int) -> Iterator[Part]:
    """The Parts of an encoded Frame, in order."""
    starts = range(0, len(packed), part_bytes)
    for index, start in enumerate(starts):
        yield Part(transfer_id=transfer_id, index=index, last=index == len(starts) - 1,
                   data=packed[start:start + part_bytes])


class Transfers:
    """What one peer is sending in parts. All transfers under way together hold at most `limit_bytes`."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._pieces: dict[int, list[bytes]] = {}
        self._newest = 0

    def add(self, part: Part) -> bytes | None:
        """The whole when this was its last piece. Raises RemoteProtocolError."""
        pieces = self._pieces.get(part.transfer_id)
        if pieces is None:
            pieces = self._begin(part)
        if part.index != len(pieces):
            raise RemoteProtocolError(f"The peer sent part {part.index} of a transfer where {len(pieces)} was due.")
        if not part.data:
            raise RemoteProtocolError("The peer sent an empty part.")
        self._bytes += len(part.data)
        if self._bytes > self._limit_bytes:
            raise RemoteProtocolError(f"The peer's transfers passed {self._limit_bytes} bytes.", code="transfer_too_large")
        pieces.append(part.data)
        return self._end(part.transfer_id) if part.last else None

    def clear(self) -> None:
        self._pieces.clear()
        self._bytes = 0

    def _begin(self, part: Part) -> list[bytes]:
        """Ids grow, so a transfer that has ended cannot begin again."""
        if part.transfer_id <= self._newest:
            raise RemoteProtocolError("The peer sent a part of a transfer that has ended.")
        if len(self._pieces) >= TRANSFERS:
            raise RemoteProtocolError(f"The peer began more than {TRANSFERS} transfers at once.", code="too_many")
        self._newest = part.transfer_id
        return self._pieces.setdefault(part.transfer_id, [])

    def _end(self, transfer_id: int) -> bytes:
        whole = b"".join(self._pieces.pop(transfer_id))
        self._bytes -= len(whole)
        return whole
