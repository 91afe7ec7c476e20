"""Programs from npm, in a cache folder of this tree: installed once, skipped with a reason where that cannot be done."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CACHE = Path(__file__).resolve().parents[2] / ".real"
INSTALL_S = 600


def program(package: str, version: str, name: str) -> Path:
    """The path of the program `name` of an npm package of exactly that version."""
    folder = CACHE / package.strip("@").replace("/", "-") / version
    path = folder / "node_modules" / ".bin" / name
    if not path.exists():
        _install(folder, f"{package}@{version}")
    return path


def packages(name: str, *wanted: str) -> Path:
    """A folder, called `name`, in which scripts find these packages (`NAME@VERSION`)."""
    folder = CACHE / name
    done = folder / "-".join(one.strip("@").replace("/", "-") for one in wanted)
    if not done.exists():
        _install(folder, *wanted)
        done.touch()
    return folder


def _install(folder: Path, *wanted: str) -> None:
    named = " ".join(wanted)
    if shutil.which("npm") is None:
        pytest.skip(f"npm is not there to install {named}")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        told = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "-E", *wanted], cwd=folder,
                              capture_output=True, text=True, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{named} could not be installed within {INSTALL_S} s")
    if told.returncode:
        pytest.skip(f"{named} could not be installed: {told.stderr.strip()[-300:]}")
