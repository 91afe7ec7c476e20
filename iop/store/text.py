"""Text as every database takes it: PostgreSQL refuses NUL, both refuse half a surrogate pair."""

from __future__ import annotations

import re

_REFUSED = re.compile("[\x00\ud800-\udfff]")


def clean(value: object) -> object:
    """`value`, with what a text column cannot hold replaced by U+FFFD; anything but text as it is.

    Applied to what is stored and to what is searched for alike, so that a strange id is still found.
    """
    if isinstance(value, str) and _REFUSED.search(value):
        return _REFUSED.sub("\ufffd", value)
    return value
