"""Seeded bugs prove the checker: each patch under mutants/ is put into a copy of the product, and has to be caught.

``python -m tests.faults.mutants [--only NAME,NAME]``: every scenario first on the product as it is, where nothing may be
found; then each mutant under its scenario, where something has to be. Exit code 1 otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.faults import directed
from tests.faults.campaign import Campaign
from tests.faults.checker import Finding
from tests.faults.directed import PROGRAMS, SCENARIOS, STREAMS, Scenario
from tests.faults.processes import ROOT, Nursery
from tests.faults.schedule import Plan

PATCHES = Path(__file__).with_name("mutants")


class Mutant(NamedTuple):
    """One seeded bug: its patch is mutants/<name>.patch; one of `kinds` has to be found under `scenario`."""

    name: str
    scenario: Scenario
    kinds: frozenset[str]


def _mutant(name: str, scenario: Scenario, *kinds: str) -> Mutant:
    return Mutant(name, scenario, frozenset(kinds))


MUTANTS = (
    _mutant("acknowledge-before-commit", directed.an_edge_dies_with_events_that_history_has_not, "lost"),
    _mutant("no-duplicate-key", directed.a_link_breaks_with_events_that_history_has_not, "duplicated", "reordered", "lost"),
    _mutant("trim-on-send", directed.a_link_swallows_what_was_sent, "lost"),
    _mutant("no-spool", directed.a_node_dies_with_events_that_the_edge_has_not, "lost", "duplicated"),
    _mutant("relay-of-a-hole", directed.a_frame_is_left_out, "lost"),
    _mutant("no-heartbeat", directed.a_peer_goes_silent, "not noticed"),
    _mutant("two-endings", directed.a_node_comes_back_after_its_runs_were_given_up, "two endings"),
    _mutant("restart-executes-again", directed.nodes_are_killed_under_their_programs, "executed twice"),
    _mutant("resume-from-the-start", directed.nodes_are_killed_under_their_programs, "reordered", "phantom"),
)
SOON = ("trim-on-send", "two-endings", "restart-executes-again")     # what fits into a minute


def plan_of(scenario: Scenario) -> Plan:
    patience = {"lost_after_s": 2.0} if scenario is directed.a_node_comes_back_after_its_runs_were_given_up else {}
    return Plan(scenario.__name__, programs=PROGRAMS, streams=STREAMS, edge=patience)


async def findings_of(scenario: Scenario, tree: Path, folder: Path) -> list[Finding]:
    """What comes out when `scenario` is let loose on the product in `tree`."""
    nursery = Nursery(tree)
    try:
        result = await Campaign(plan_of(scenario), folder, nursery, None, script=scenario).run()
    finally:
        nursery.stop()
    return result.report.findings


def mutated(name: str, folder: Path) -> Path:
    """A copy of the product with that bug in it."""
    tree = folder / name
    for part in ("iop", "twisted"):
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__", "dropin.cache"))
    subprocess.run(["git", "apply", "-C1", str(PATCHES / f"{name}.patch")], cwd=tree, check=True,
                   env={"GIT_CEILING_DIRECTORIES": str(folder), "PATH": "/usr/bin:/bin:/usr/local/bin"})
    return tree


async def run(names: tuple[str, ...], controls: bool) -> int:
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    failures = 0
    with tempfile.TemporaryDirectory(prefix="iop-mutants-") as text:
        folder = Path(text)
        for scenario in dict.fromkeys(mutant.scenario for mutant in chosen) if controls else ():
            began_s = time.monotonic()
            kept = Path(tempfile.mkdtemp(prefix="iop-directed-"))
            found = await findings_of(scenario, ROOT, kept / "world")
            failures += bool(found)
            tell(scenario.__name__.replace("_", " "), "survived" if not found else f"{words(found)}; see {kept}", began_s)
            if not found:
                kept.rmdir()  # noqa: ASYNC240  # empty
        for mutant in chosen:
            began_s = time.monotonic()
            found = await findings_of(mutant.scenario, mutated(mutant.name, folder), folder / f"world-{mutant.name}")
            caught = any(finding.kind in mutant.kinds for finding in found)
            failures += not caught
            tell(f"mutant {mutant.name}", f"caught: {words(found)}" if caught else f"NOT CAUGHT: {words(found)}", began_s)
    return failures


def words(found: list[Finding]) -> str:
    kinds = sorted({finding.kind for finding in found})
    return ", ".join(f"{kind} {sum(finding.kind == kind for finding in found)}" for kind in kinds) or "nothing found"


def tell(what: str, came_of_it: str, began_s: float) -> None:
    print(f"  {what:<52} {came_of_it} ({time.monotonic() - began_s:.0f} s)", flush=True)


def main(asked_words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.faults.mutants", description=__doc__)
    parser.add_argument("--only", default="", metavar="NAME,NAME")
    parser.add_argument("--no-controls", action="store_true", help="leave out the product as it is")
    parser.add_argument("--scenario", default="", help="only this one, on the product as it is")
    asked = parser.parse_args(asked_words)
    signal.signal(signal.SIGTERM, signal.default_int_handler)     # file systems are unmounted then, too
    if asked.scenario:
        folder = Path(tempfile.mkdtemp(prefix="iop-directed-"))
        found = asyncio.run(findings_of(SCENARIOS[asked.scenario], ROOT, folder / "world"))
        for finding in found:
            print(finding, folder)
        return bool(found)
    return 1 if asyncio.run(run(tuple(filter(None, asked.only.split(","))), not asked.no_controls)) else 0


if __name__ == "__main__":
    sys.exit(main())
