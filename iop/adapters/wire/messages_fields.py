"""Reading the fields of a request in Anthropic's Messages API: what they must be, and the refusal that names the place."""

from __future__ import annotations

from typing import Any, NoReturn

from iop.errors import InvalidRequest


def refuse(place: str, sentence: str) -> NoReturn:
    raise InvalidRequest(f"{place}: {sentence}.")


def is_object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        refuse(place, "must be an object")
    return value


def is_text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        refuse(place, "must be a text")
    return value
