"""A request of one model API, told in another that the backend has. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple


class Translated(NamedTuple):
    """`warnings` are sentences about what the other API cannot say and was left out; never a reason to refuse the run."""

    body: dict[str, Any]
    warnings: tuple[str, ...] = ()
    api: str = "chat/completions"
