"""What makes the answer of one model API out of a run's entries: a stream, or one body."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from iop.edge.models.ending import Ending


class StreamTeller(Protocol):
    """A streaming answer. An entry is an iop.edge.runlog.Entry."""

    ending: Ending
    media_type: str
    """Of the answer; asked once there is something to send."""

    heartbeat: bytes
    """What is written after a quiet time; with none, nothing goes out before the first output, however long it takes."""

    def write(self, entry: Any) -> bytes:
        """What the client is told of an entry; empty when there is nothing in it for it."""

    def end(self) -> bytes:
        """What follows the last entry, however the run ended."""


@runtime_checkable
class Beating(Protocol):
    """A StreamTeller whose heartbeats are not always the same."""

    def beat(self) -> bytes:
        """What is written after this quiet time."""


def beat(teller: StreamTeller) -> bytes:
    """What is written after a quiet time."""
    return teller.beat() if isinstance(teller, Beating) else teller.heartbeat


class WholeTeller(Protocol):
    """An answer in one piece."""

    ending: Ending
    media_type: str
    size: int
    """About, of what is kept: characters of text, bytes of a backend's own body."""

    def read(self, entry: Any) -> None:
        """Keep what is in an entry."""

    def body(self) -> bytes:
        """The body of a run that has completed."""
