"""JSON that comes in pieces, as the choices of a stream do: texts, objects and lists grow. Pure."""

from __future__ import annotations

from io import StringIO
from typing import Any, TypeVar

import msgspec

# What comes piece by piece outside of a delta: a completion's text, a call's arguments, an audio's parts.
_TEXTS = frozenset(("text", "arguments", "input", "data", "transcript"))

Grown = TypeVar("Grown")


class Pieces:
    """An object. Of a value that does not grow, the last one that says something counts."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}

    def add(self, fields: dict[str, Any]) -> None:
        for name, value in fields.items():
            if isinstance(value, str) and self._is_text(name):
                self._growing(name, StringIO).write(value)
            elif isinstance(value, dict):
                self._growing(name, Delta if name == "delta" else Pieces).add(value)
            elif isinstance(value, list):
                self._growing(name, Row).add(value)
            elif value not in (None, "") or name not in self._fields:
                self._fields[name] = value

    def _is_text(self, name: str) -> bool:
        return name in _TEXTS

    def _growing(self, name: str, kind: type[Grown]) -> Grown:
        held = self._fields.get(name)
        if not isinstance(held, kind):
            held = self._fields[name] = kind()
        return held

    def whole(self) -> dict[str, Any]:
        return {name: _whole(held) for name, held in self._fields.items()}


class Delta(Pieces):
    """A message. Its role stands; content, reasoning, refusal and what an engine adds are texts."""

    def _is_text(self, name: str) -> bool:
        return name != "role"


class Row:
    """A list. Objects of one index are one item, told in the order of the index; what has none is an item by itself."""

    def __init__(self) -> None:
        self._indexed: dict[int, Pieces] = {}
        self._items: list[Any] = []

    def add(self, items: list[Any]) -> None:
        for item in items:
            index = item.get("index") if isinstance(item, dict) else None
            if not isinstance(index, int):
                self._items.append(_packed(item))
                continue
            if index not in self._indexed:
                self._indexed[index] = Pieces()
            self._indexed[index].add(item)

    def whole(self) -> list[Any]:
        return [self._indexed[index].whole() for index in sorted(self._indexed)] + self._items


def _whole(held: Any) -> Any:
    if isinstance(held, StringIO):
        return held.getvalue()
    return held.whole() if isinstance(held, (Pieces, Row)) else held


def _packed(item: Any) -> Any:
    """Of a token's logprobs the bytes: as objects they would take ten times as much."""
    try:
        return msgspec.Raw(msgspec.json.encode(item)) if isinstance(item, dict) else item
    except UnicodeEncodeError:                   # half a character is in it
        return item
