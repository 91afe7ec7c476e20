"""JSON of a backend, which may hold lone surrogates: some engines send half an emoji, and the other half next. Pure."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from iop.errors import UpstreamError
from iop.fitting import fitted

S = TypeVar("S", bound=msgspec.Struct)


def decode_leniently(payload: bytes) -> Any:
    """Where msgspec does not read it. Raises UpstreamError for what is no JSON."""
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        raise UpstreamError("The backend sent a chunk that is not JSON.") from None


def read_fitting(payload: bytes, kind: type[S]) -> S:
    """What fits of it; of half a character there is a question mark. Raises UpstreamError for what is no JSON."""
    value = decode_leniently(payload)
    return fitted(json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")), kind)


def read_object(payload: bytes) -> dict[str, Any]:
    """Raises UpstreamError."""
    try:
        value = msgspec.json.decode(payload)
    except msgspec.DecodeError:
        value = decode_leniently(payload)
    if not isinstance(value, dict):
        raise UpstreamError("The backend sent a chunk that is no JSON object.")
    return value


def encoded(value: Any) -> bytes:
    """JSON, also of half characters."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:                   # half characters; two that came apart are one again
        return json.dumps(value, default=msgspec.json.decode).encode("ascii")
