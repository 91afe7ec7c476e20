"""Foreign JSON of which some fields have other types than expected: those count as absent, the others are kept. Pure."""

from __future__ import annotations

import json
import types
from typing import Any, TypeVar, get_args, get_origin

import msgspec

S = TypeVar("S", bound=msgspec.Struct)


def fitted(value: Any, kind: type[S]) -> S:
    """A struct of what fits in `value` (decoded JSON), however deep; each field of `kind` has a default."""
    found: dict[str, Any] = {}
    if isinstance(value, dict):
        for field in msgspec.structs.fields(kind):
            for fit in _fit(value[field.encode_name], field.type) if field.encode_name in value else ():
                found[field.name] = fit
    return kind(**found)


def _fit(value: Any, kind: Any) -> list[Any]:
    """One value, or none."""
    if kind is msgspec.Raw:
        return [msgspec.Raw(json.dumps(value).encode())]
    try:
        return [msgspec.convert(value, kind)]
    except msgspec.ValidationError:
        pass
    parts = get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    return [fit for part in parts for fit in _fit_in(value, part)][:1]


def _fit_in(value: Any, kind: Any) -> list[Any]:
    if get_origin(kind) is list and isinstance(value, list):
        [inner] = get_args(kind)
        return [[fitted(item, inner) for item in value]] if _is_struct(inner) else []
    return [fitted(value, kind)] if _is_struct(kind) and isinstance(value, dict) else []


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
