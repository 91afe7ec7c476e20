"""A request of one model API, told in another that the backend has, and how what it lacks is named. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from iop.modelapis import CHAT


class Translated(NamedTuple):
    """`warnings` are sentences about what the other API cannot say and was left out; never a reason to refuse the run."""

    body: dict[str, Any]
    warnings: tuple[str, ...] = ()
    api: str = CHAT


def fields_left_out(body: dict[str, Any], unknown: Collection[str]) -> list[str]:
    """A warning for each of the `unknown` fields that says something in `body`."""
    return [f"`{name}` was left out: the backend's API does not know it." for name in sorted(unknown) if body.get(name)]


def choice_left_out(tool: object) -> str:
    """The warning for a `tool_choice` of a tool that was left out itself."""
    return f"`tool_choice` was left out: the tool {str(tool)[:64]!r} cannot be told to the backend."


def kept(fields: dict[str, Any]) -> dict[str, Any]:
    """Those that say something."""
    return {name: value for name, value in fields.items() if value is not None}
