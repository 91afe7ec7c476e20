"""What backends replied: captured from real ones, made of events, and cut into pieces anywhere."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import strategies as st

CAPTURES = Path(__file__).parent / "captures"

places = st.lists(st.integers(0, 10_000), max_size=20)


def captured(name: str) -> bytes:
    """The body of a reply; `name` is server-version/file, with the reply's head in it where the file ends in .http."""
    data = (CAPTURES / name).read_bytes()
    return data.split(b"\r\n\r\n", 1)[1] if name.endswith(".http") else data


def sse(*events: dict[str, object]) -> bytes:
    """A stream of events that name themselves."""
    return b"".join(b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), json.dumps(event).encode())
                    for event in events)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in zip(marks, marks[1:], strict=False)]
