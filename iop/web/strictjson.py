"""JSON from outside, read strictly (RFC 8259): one meaning or none.

Refused besides what is no JSON: duplicate keys (which parsers resolve differently), NaN and infinities, lone surrogates,
text that is not UTF-8, anything nested deeper than 64, and more than 250,000 values: a body of 30 MiB that is one text takes
0.1 s to read, one of empty lists 15 s, in which nothing else happens.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn, TypeVar

import msgspec

from iop.errors import InvalidRequest, TooLarge
from iop.schema import fault

DEPTH = 64
VALUES = 250_000

T = TypeVar("T")


def loads(body: bytes) -> Any:
    """The value of `body`. Raises InvalidRequest with a sentence that says what is wrong with it."""
    _check_size(body)
    try:
        value = _decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"The body is not UTF-8 (byte {error.start}).") from None
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.") from None
    except ValueError:  # an integer of more than 4,300 digits
        raise InvalidRequest("The body has a number that is too long.") from None
    except RecursionError:
        raise InvalidRequest(f"The body is nested deeper than {DEPTH}.") from None
    _check_depth(value)
    if b"\\ud" in body or b"\\uD" in body:
        _check_surrogates(value)
    return value


def _check_size(body: bytes) -> None:
    """Count what stands outside of texts. Of what is no JSON, all is seen that a parser sees before it stops."""
    if len(body) <= 2 * VALUES:              # each takes two bytes at least
        return
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if bare.count(b'"') <= 2 * VALUES:
        structure = b"".join(bare.split(b'"')[::2])
        if structure.count(b",") + structure.count(b"[") + structure.count(b"{") <= VALUES:
            return
    raise TooLarge(f"The body has too many values: more than {VALUES} commas and brackets stand outside of its texts.")


def convert(value: Any, type_: type[T], *, strict: bool = True) -> T:
    """`value` as `type_`. Raises InvalidRequest that names the field."""
    try:
        return msgspec.convert(value, type_, strict=strict)
    except msgspec.ValidationError as error:
        raise InvalidRequest(fault(type_, str(error), whole="The request")[1]) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRequest(f"The key {twice[:64]!r} stands twice in one object.")
    return result


def _constant(name: str) -> NoReturn:
    raise InvalidRequest(f"{name} is not JSON.")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise InvalidRequest(f"The number {text[:32]} is too large.")
    return value


# Made once: json.loads() makes one for each call that asks for a hook.
_decode = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_float).decode


def _check_depth(value: Any) -> None:
    """Level by level, so that it takes no recursion itself."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEPTH):
        if not level:
            return
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)
                 if isinstance(child, dict | list)]
    if level:
        raise InvalidRequest(f"The body is nested deeper than {DEPTH}.")


def _check_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidRequest("The body has half of a surrogate pair.") from None
