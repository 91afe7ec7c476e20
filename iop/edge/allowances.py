"""What each owner of keys may use, and has used, over a clock that is passed in. Pure.

::

    admit    a request    permission, then budget, then tokens a minute, then requests a minute; the first that fails tells
    charge   an ending    its tokens and its cost, which nobody can know before

Tokens are taken out of their bucket when a run ends, so that its level may fall below zero: then nothing is admitted until
it is above again. How many runs are at work is the queue's affair (iop.edge.slots).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from iop.edge.bucket import Bucket
from iop.edge.spent import Spent
from iop.errors import Forbidden, QuotaExhausted, RateLimited
from iop.keylimits import KeyLimits, tightest
from iop.records import UsageRow


class _Account:
    """What one owner has used."""

    __slots__ = ("requests", "spent", "tokens")

    def __init__(self, now_us: int) -> None:
        self.requests: Bucket | None = None
        self.tokens: Bucket | None = None
        self.spent = Spent(now_us)


class Allowances:
    """Of all owners. `limits_of(owner)`: the limits of each of the owner's keys, none for an owner without any;
    `may_hurry(owner)`: whether its runs may be urgent where no limit says it."""

    def __init__(self, limits_of: Callable[[str], Sequence[KeyLimits]], may_hurry: Callable[[str], bool],
                 seconds: Callable[[], float], now_us: Callable[[], int]) -> None:
        self._limits_of = limits_of
        self._may_hurry = may_hurry
        self._seconds = seconds
        self._now_us = now_us
        self._accounts: dict[str, _Account] = {}

    def of(self, owner: str) -> KeyLimits | None:
        """The limits that count; None where there are none. Names are no part of them: see permit()."""
        found = self._limits_of(owner)
        return (found[0] if len(found) == 1 else tightest(found)) if found else None

    def permit(self, owner: str, asked: str, targets: Iterable[str]) -> None:
        """Raises Forbidden where a key of the owner does not allow the name that was asked, nor all that it means."""
        if not self.permits(owner, asked, targets):
            raise Forbidden(f"This key may not use {asked[:100]}.")

    def permits(self, owner: str, asked: str, targets: Iterable[str]) -> bool:
        """Whether every key of the owner allows the name that was asked, or all that it means."""
        found = self._limits_of(owner)
        if not found:
            return True
        named = tuple(targets)
        return all(not limits.models or limits.lets((asked,)) or all(limits.lets((target,)) for target in named)
                   for limits in found)

    def priority(self, owner: str, asked: int) -> int:
        """How urgent the owner's run is, at most as it was asked for: nobody goes before all others by a mere header."""
        limits = self.of(owner)
        if limits is not None and limits.max_priority is not None:
            return min(asked, limits.max_priority)
        return asked if asked <= 0 or self._may_hurry(owner) else 0

    def concurrency(self, owner: str) -> int:
        limits = self.of(owner)
        return limits.concurrency if limits is not None else 0

    def admit(self, owner: str) -> None:
        """One more request. Raises QuotaExhausted, and RateLimited with the time until it would pass."""
        limits = self.of(owner)
        if limits is None:
            return
        now_s, account = self._seconds(), self._account(owner, limits)
        self._check_budget(limits, account.spent)
        if account.tokens is not None and account.tokens.level(now_s) <= 0:
            raise _limited(f"The key has used up its {limits.tokens_per_minute} tokens a minute.", account.tokens, now_s)
        if account.requests is not None:
            if account.requests.level(now_s) < 1:
                raise _limited(f"The key has used up its {limits.requests_per_minute} requests a minute.", account.requests,
                               now_s)
            account.requests.take(1, now_s)

    def _check_budget(self, limits: KeyLimits, spent: Spent) -> None:
        for word, (tokens, cost), most_tokens, most_cost in (
                ("day", spent.day, limits.tokens_per_day, limits.cost_per_day),
                ("month", spent.month, limits.tokens_per_month, limits.cost_per_month)):
            if most_tokens and tokens >= most_tokens:
                raise QuotaExhausted(f"The key has used up its {most_tokens} tokens a {word}.")
            if most_cost and cost >= most_cost * 1e6:
                raise QuotaExhausted(f"The key has used up its ${most_cost:.2f} a {word}.")

    def charge(self, owner: str, tokens: int, cost_micros: int) -> None:
        """A run of the owner has ended."""
        limits = self.of(owner)
        if limits is not None and (tokens or cost_micros):
            account = self._account(owner, limits)
            account.spent.add(tokens, cost_micros)
            if account.tokens is not None:
                account.tokens.take(tokens, self._seconds())

    def load(self, day: Iterable[UsageRow], month: Iterable[UsageRow]) -> None:
        """What history has of the present day and month, by key: instead of what was known."""
        now_us = self._now_us()
        for account in self._accounts.values():
            account.spent = Spent(now_us)
        for rows, name in ((day, "day"), (month, "month")):
            for row in rows:
                account = self._accounts.setdefault(row.key, _Account(now_us))
                setattr(account.spent, name, [row.tokens, row.cost_micros])

    def headers(self, owner: str) -> dict[str, str]:
        """What is left of a minute's requests and tokens, as OpenAI's clients read it; none where there is no limit."""
        limits = self.of(owner)
        if limits is None:
            return {}
        now_s, account, told = self._seconds(), self._account(owner, limits), {}
        for name, bucket in (("requests", account.requests), ("tokens", account.tokens)):
            if bucket is not None:
                told |= {f"x-ratelimit-limit-{name}": f"{bucket.capacity:.0f}",
                         f"x-ratelimit-remaining-{name}": str(max(0, int(bucket.level(now_s)))),
                         f"x-ratelimit-reset-{name}": f"{bucket.wait_s(bucket.capacity, now_s):.3f}s"}
        return told

    def _account(self, owner: str, limits: KeyLimits) -> _Account:
        """Brought to the present: its limits may have been changed, and a day may be over."""
        account = self._accounts.get(owner)
        if account is None:
            account = self._accounts[owner] = _Account(self._now_us())
        account.spent.roll(self._now_us())
        account.requests = self._bucket(account.requests, limits.requests_per_minute)
        account.tokens = self._bucket(account.tokens, limits.tokens_per_minute)
        return account

    def _bucket(self, bucket: Bucket | None, capacity: int) -> Bucket | None:
        if not capacity:
            return None
        if bucket is None:
            return Bucket(capacity, self._seconds())
        bucket.resize(capacity, self._seconds())
        return bucket


def _limited(sentence: str, bucket: Bucket, now_s: float) -> RateLimited:
    error = RateLimited(sentence)
    error.retry_after_s = max(bucket.wait_s(1, now_s), 0.001)
    return error
