"""The table of a campaign fits a terminal."""

from __future__ import annotations

from collections import Counter

from tests.faults.campaign import Done, Result
from tests.faults.checker import Finding, Report
from tests.faults.kinds import KINDS
from tests.faults.schedule import Plan
from tests.faults.table import as_json, table


def test_it_has_80_columns_and_tells_every_kind_and_finding():
    faults = [Done(kind, "detail", 1.0, 7) for kind in KINDS for _ in range(33)]
    counts = Counter({"events": 123_456_789, "ended: failed supervisor_lost": 30, "ended: completed ok": 1234})
    result = Result(Plan("999999.31"), faults, ["cancel: nothing runs"], Report([Finding("lost", "run", "x")], counts))
    told = as_json(999_999, [result], 12345.6)
    lines = table(told).splitlines()
    assert max(map(len, lines)) <= 80
    assert told["found"]["lost"] == 1 and told["faults"] == len(faults) and told["busy_percent"] == 100.0
    assert all(any(kind in line for line in lines) for kind in KINDS)
