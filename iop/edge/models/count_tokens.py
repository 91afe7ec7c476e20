"""Anthropic's messages/count_tokens. Pure."""

from __future__ import annotations

from typing import Any

from iop.edge.models.deltas import Deltas
from iop.errors import NotFound
from iop.modelapis import COUNT_TOKENS
from iop.web.responses import JSON

CANNOT_COUNT = "The backend of this model cannot count tokens."


class CountBody:
    """The answer to messages/count_tokens: that of a backend which can count (ADR 0023)."""

    media_type = JSON

    def __init__(self) -> None:
        self._deltas = Deltas(COUNT_TOKENS)
        self.ending = self._deltas.ending
        self.size = 0
        self._raw = b""

    def read(self, entry: Any) -> None:
        self._deltas.read(entry)
        if self._deltas.native:
            self._raw += b"".join([event.raw for event in entry.batch.events])
            self.size = len(self._raw)

    def body(self) -> bytes:
        """Raises NotFound where nothing was counted."""
        if not self._raw:
            raise NotFound(CANNOT_COUNT)
        return self._raw
