"""What runs have used, summed out of one index that has all it needs; a page of runs at a time (iop.store.reader)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from iop.records import UsageQuery, UsageRow
from iop.store import tables
from iop.store.text import clean
from iop.store.work import Pages

PAGE_RUNS = 5000                     # summed at once: about 3 ms

_runs = tables.runs
_GROUPS = {"key": (_runs.c.principal,), "model": (_runs.c.adapter, _runs.c.target), "node": (_runs.c.node_id,)}
_SUMS = (func.count(), *(func.sum(_runs.c[name]) for name in
                         ("prompt_tokens", "completion_tokens", "cached_tokens", "cost_micros")))


def summed(connection: Connection, query: UsageQuery) -> Pages:
    """[UsageRow], the most tokens first."""
    sums: dict[tuple[str, ...], list[int]] = {}
    since, until = query.since_us, query.until_us or 2 ** 62
    while since < until:
        yield
        end = connection.execute(select(_runs.c.created_us).where(
            _runs.c.created_us >= since, _runs.c.created_us < until).order_by(_runs.c.created_us)
            .offset(PAGE_RUNS).limit(1)).scalar()
        end = until if end is None else max(end, since + 1)
        for row in connection.execute(_used(query, since, end)).all():
            group, found = tuple(row[:-len(_SUMS)]), [int(value or 0) for value in row[-len(_SUMS):]]
            sums[group] = [one + more for one, more in zip(sums.get(group, [0] * len(_SUMS)), found, strict=True)]
        since = end
    rows = [_usage_row(query.by, group, found) for group, found in sums.items() if found[0]]
    return sorted(rows, key=lambda row: (-row.tokens, -row.runs, row.key, row.model, row.node))


def _used(query: UsageQuery, since: int, end: int) -> Any:
    """The sums over one page of runs."""
    columns = [column for name in query.by for column in _GROUPS[name]]
    statement = select(*columns, *_SUMS).where(_runs.c.created_us >= since, _runs.c.created_us < end).group_by(*columns)
    if query.principal:          # joined to nothing, so that no index of principals is taken, which leads to all their rows
        statement = statement.where(_runs.c.principal + "" == clean(query.principal))
    return statement


def _usage_row(by: Sequence[str], group: tuple[str, ...], sums: list[int]) -> UsageRow:
    names, left = {}, list(group)
    for name in by:
        taken = [left.pop(0) for _ in _GROUPS[name]]
        names[name] = "/".join(taken)
    return UsageRow(**names, runs=sums[0], prompt_tokens=sums[1], completion_tokens=sums[2], cached_tokens=sums[3],
                    cost_micros=sums[4])
