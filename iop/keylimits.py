"""What an API key may use."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0, le=10 ** 15)]
Dollars = Annotated[float, Meta(ge=0, le=10 ** 9)]
Priority = Annotated[int, Meta(ge=-1000, le=1000)]


class KeyLimits(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, omit_defaults=True):
    """What the owner of a key may use; 0 and nothing mean: without limit. Of two keys of one owner the tighter counts."""

    requests_per_minute: Count = 0
    tokens_per_minute: Count = 0
    concurrency: Count = 0           # runs at work at once; more wait in the queue
    tokens_per_day: Count = 0        # days and months begin at midnight UTC
    tokens_per_month: Count = 0
    cost_per_day: Dollars = 0.0
    cost_per_month: Dollars = 0.0
    max_priority: Priority | None = None   # None: 0, or any where the owner has a key with the scope admin
    models: list[str] = []           # names of models and targets; * stands for any text

    @property
    def budgeted(self) -> bool:
        return bool(self.tokens_per_day or self.tokens_per_month or self.cost_per_day or self.cost_per_month)

    def lets(self, names: Iterable[str]) -> bool:
        """Whether one of these names of a model is allowed."""
        return not self.models or any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in self.models)


NO_LIMITS = KeyLimits()
NUMBERS = tuple(name for name in KeyLimits.__struct_fields__ if name not in ("max_priority", "models"))


def tightest(found: Sequence[KeyLimits]) -> KeyLimits:
    """The least of each, where one is set; without `models`, of which each key has the last word."""
    numbers = {name: min((value for limits in found if (value := getattr(limits, name))), default=0) for name in NUMBERS}
    urgent = min((limits.max_priority for limits in found if limits.max_priority is not None), default=None)
    return KeyLimits(**numbers, max_priority=urgent)
