"""The framing of Server-Sent Events (the HTML standard, section 9.2). Pure."""

from __future__ import annotations

from collections.abc import Sequence

COMMENT = b": ping\n\n"      # safe where no `id:` was sent too: nothing is dispatched

_NEWLINES = bytes.maketrans(b"\r\n", b"  ")


def data_frame(data: bytes) -> bytes:
    """JSON as one `data:` line. A line end can only stand between tokens of JSON, where a space says the same."""
    if b"\n" in data or b"\r" in data:
        data = data.translate(_NEWLINES)
    return b"data: " + data + b"\n\n"


def data_frames(pieces: Sequence[bytes]) -> bytes:
    """Each of several JSON texts as a `data:` line, in one go."""
    if not pieces:
        return b""
    data = b"".join([b"data: ", b"\n\ndata: ".join(pieces), b"\n\n"])
    if data.count(b"\n") != 2 * len(pieces) or b"\r" in data:
        return b"".join([data_frame(piece) for piece in pieces])
    return data
