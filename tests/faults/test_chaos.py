"""A short campaign: two worlds, about sixty faults, a roll-back in each. `make chaos` is the long one."""

from __future__ import annotations

import asyncio

from tests.faults.__main__ import Chaos
from tests.faults.table import as_json, table

FAULTS = 60
SEED = 20261201


def test_nothing_is_lost_doubled_reordered_or_left_in_sixty_random_faults():
    chaos = Chaos(FAULTS, SEED)
    told = as_json(SEED, asyncio.run(chaos.run()), 0.0)
    assert told["findings"] == [], f"{table(told)}\nkept in {chaos.folder}\n{told['findings'][:10]}"
    assert told["faults"] + len(told["missed"]) == FAULTS and len(told["missed"]) <= 3, told["missed"]
    assert told["counts"]["events"] > 5000 and told["counts"]["shown"] > 5000
