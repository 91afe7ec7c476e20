"""What has been spent of the budgets of a day and a month, both of which begin at midnight UTC. Pure."""

from __future__ import annotations

import datetime

DAY_US = 86_400_000_000


class Spent:
    """Tokens and cost (millionths of a dollar) of the present day and month, in UTC."""

    __slots__ = ("_day", "_month", "day", "month")

    def __init__(self, now_us: int) -> None:
        self._day, self._month = day_start_us(now_us), month_start_us(now_us)
        self.day, self.month = [0, 0], [0, 0]

    def roll(self, now_us: int) -> None:
        """A day or a month that is over counts no more."""
        if not self._day <= now_us < self._day + DAY_US:
            self._day, self.day = day_start_us(now_us), [0, 0]
            if self._month != (month := month_start_us(now_us)):
                self._month, self.month = month, [0, 0]

    def add(self, tokens: int, cost_micros: int) -> None:
        for sums in (self.day, self.month):
            sums[0] += tokens
            sums[1] += cost_micros


def day_start_us(now_us: int) -> int:
    return now_us - now_us % DAY_US


def month_start_us(now_us: int) -> int:
    day = datetime.datetime.fromtimestamp(now_us // 1_000_000, datetime.UTC)
    return int(day.replace(day=1, hour=0, minute=0, second=0, microsecond=0).timestamp()) * 1_000_000
