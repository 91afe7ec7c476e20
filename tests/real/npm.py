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
    if path.exists():
        return path
    if shutil.which("npm") is None:
        pytest.skip(f"npm is not there to install {package}@{version}")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        told = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "-E", f"{package}@{version}"], cwd=folder,
                              capture_output=True, text=True, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{package}@{version} could not be installed within {INSTALL_S} s")
    if told.returncode:
        pytest.skip(f"{package}@{version} could not be installed: {told.stderr.strip()[-300:]}")
    return path
