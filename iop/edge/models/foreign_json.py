"""JSON that a backend or a model wrote: what cannot be read as what was expected counts as absent. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

decode_any: Callable[[bytes | str], Any] = msgspec.json.Decoder().decode


def read_as(decode: Callable[[bytes | str], T], text: bytes | str) -> T | None:
    """What `decode` (a msgspec decoder's) makes of `text`; None for what is empty, no JSON, of another shape or nested so
    deep that reading it would take the stack."""
    try:
        return decode(text) if text else None
    except (msgspec.DecodeError, RecursionError):
        return None


def read_object(text: bytes | str) -> dict[str, Any] | None:
    """An object; None for anything else."""
    value = read_as(decode_any, text)
    return value if isinstance(value, dict) else None
