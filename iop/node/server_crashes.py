"""How often a model server has ended by itself in a row, and what comes of it. Pure."""

from __future__ import annotations

from iop.errors import AdapterError, IOPError

REST_S, REST_MOST_S = 0.5, 30.0      # before it is started again; doubled each time in a row
STEADY_S = 60.0                      # one that was warm for so long has not crashed in a row


class Crashes:
    """More than `most` of them in a row are a crash loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0

    def add(self, warm_s: float) -> float | None:
        """One more, `warm_s` after it was ready (0: it never was): the seconds until it is started again, None: it is not."""
        self._count = 1 if warm_s >= STEADY_S else self._count + 1
        return min(REST_S * 2 ** (self._count - 1), REST_MOST_S) if self._count <= self._most else None

    def forget(self) -> None:
        self._count = 0


def crash_sentence(name: str, why: str, words: str) -> str:
    """What is told of a crash, with the server's last words."""
    return f"The server {name}: {why}." + (f" Its last words: {words}" if words else " It said nothing.")


def told_again(error: IOPError) -> IOPError:
    """One of its own for each who is told; another node may be able to."""
    copy = type(error)(error.message)
    if isinstance(copy, AdapterError):
        copy.retryable = True
    return copy
