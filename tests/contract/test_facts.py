"""Each fact that real clients depend on has its test."""

from __future__ import annotations

import re
from pathlib import Path

from tests.contract.facts import FACTS

TESTS = Path(__file__).parents[1]
TEST = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)


def test_every_fact_has_a_test_that_there_is() -> None:
    there = {name for file in TESTS.rglob("test_*.py") for name in TEST.findall(file.read_text())}
    missing = {fact: set(names) - there for facts in FACTS.values() for fact, names in facts.items()}
    assert not {fact: names for fact, names in missing.items() if names}
    assert all(names for facts in FACTS.values() for names in facts.values())
