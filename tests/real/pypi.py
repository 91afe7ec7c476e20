"""Python packages that are too large for .venv: an environment of their own in the cache folder, made once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.npm import CACHE

INSTALL_S = 600


def python_with(*wanted: str) -> Path:
    """A Python that has these packages (`NAME==VERSION`); skips with the reason where they cannot be had."""
    folder = CACHE / "-".join(one.replace("==", "-") for one in wanted)
    done, path = folder / "installed", folder / "bin" / "python"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, capture_output=True)
        try:
            told = subprocess.run([path, "-m", "pip", "install", "--quiet", *wanted], capture_output=True, text=True,
                                  timeout=INSTALL_S)
        except subprocess.TimeoutExpired:
            pytest.skip(f"{' '.join(wanted)} could not be installed within {INSTALL_S} s")
        if told.returncode:
            pytest.skip(f"{' '.join(wanted)} could not be installed: {told.stderr.strip()[-300:]}")
        done.touch()
    return path
