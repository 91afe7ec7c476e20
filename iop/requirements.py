"""What a target needs of its machine: stated by an adapter, judged by the node's policy. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run."""

    argv: tuple[str, ...]            # with placeholders still in place
    cwd: str = ""                    # empty: a private folder that the node makes
    env: Mapping[str, str] = field(default_factory=dict)
    serves: bool = False             # it answers runs instead of being one: to begin such a run again has no effects


@dataclass(frozen=True, slots=True)
class Upstream:
    """A model backend to talk to."""

    url: str
