"""The checker catches what it has to: some of the seeded bugs; `make chaos` runs all of them."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from tests.faults.mutants import MUTANTS, PATCHES, SOON, Mutant, findings_of, mutated, words


def test_every_mutant_has_its_patch_and_every_patch_its_mutant():
    assert sorted(mutant.name for mutant in MUTANTS) == sorted(file.stem for file in PATCHES.glob("*.patch"))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_patches_still_fit_and_leave_what_compiles(mutant: Mutant, tmp_path):
    tree = mutated(mutant.name, tmp_path)
    subprocess.run(["python3", "-m", "compileall", "-q", "-x", "migrations", str(tree / "iop")], check=True)


@pytest.mark.parametrize("name", SOON)
def test_a_seeded_bug_is_caught(name: str, tmp_path):
    mutant = next(one for one in MUTANTS if one.name == name)
    found = asyncio.run(findings_of(mutant.scenario, mutated(name, tmp_path), tmp_path / "world"))
    assert {finding.kind for finding in found} & mutant.kinds, words(found)
