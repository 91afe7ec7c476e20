"""A run whose reply passes as it came: embeddings, rerankings, audio, images. Its bytes and its content type. Pure."""

from __future__ import annotations

from typing import Any

from iop.edge.models.ending import Ending
from iop.errors import InvalidRequest, UpstreamError

BYTES = "application/octet-stream"


class _Passing:
    """What a stream and a whole reply share."""

    def __init__(self, model: str, api: str) -> None:
        self.ending = Ending()
        self._model = model
        self._api = api

    @property
    def media_type(self) -> str:
        return self.ending.content_type or BYTES

    def _raws(self, entry: Any) -> bytes:
        """The reply's bytes in an entry. Raises InvalidRequest for output that is none of a backend."""
        told = entry.batch.events
        self.ending.read(told)
        pieces = [event.raw for event in told if event.HasField("output")]
        if not all(pieces):
            raise InvalidRequest(f"The model {self._model[:100]!r} does not answer {self._api}.")
        return b"".join(pieces)


class PassStream(_Passing):
    """The bytes as they come. There is no room in them for a heartbeat, nor for an error."""

    heartbeat = b""

    def write(self, entry: Any) -> bytes:
        return self._raws(entry)

    def end(self) -> bytes:
        """Raises UpstreamError where what was written is not the whole reply: the connection must then break."""
        if not self.ending.completed:
            raise UpstreamError(self.ending.message)
        return b""


class PassBody(_Passing):
    """The bytes in one piece."""

    def __init__(self, model: str, api: str) -> None:
        super().__init__(model, api)
        self._pieces: list[bytes] = []
        self.size = 0

    def read(self, entry: Any) -> None:
        piece = self._raws(entry)
        self._pieces.append(piece)
        self.size += len(piece)

    def body(self) -> bytes:
        return b"".join(self._pieces)
