"""`make lock`: write requirements.lock, the run-time dependencies with versions and hashes, as pip resolves them here.

The hashes are those of the files for this Python and machine (CPython 3.11 on x86-64 Linux in the committed one).
Install with `pip install --require-hashes -r requirements.lock`, then IOP itself with `--no-deps`.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def resolve() -> list[str]:
    """Lines ``name==version --hash=sha256:…``, sorted."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    told = subprocess.run([*pip, ".[postgresql]"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    lines = []
    for item in json.loads(told)["install"]:
        if "archive_info" in item["download_info"]:        # not IOP itself
            name = item["metadata"]["name"].lower()
            lines.append(f"{name}=={item['metadata']['version']} --hash=sha256:"
                         + item["download_info"]["archive_info"]["hashes"]["sha256"])
    return sorted(lines)


if __name__ == "__main__":
    python = f"{platform.python_implementation()} {sys.version_info.major}.{sys.version_info.minor}"
    head = f"# Made by `make lock` for {python} on {platform.system()} {platform.machine()}; see tools/lock.py."
    (ROOT / "requirements.lock").write_text("\n".join([head, *resolve()]) + "\n")
