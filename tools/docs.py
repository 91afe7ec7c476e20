"""`make docs`: every link between the pages of this repository leads to a file that is there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]+)(?:#[^)]*)?\)")


def broken_links() -> list[str]:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return [f"{page.relative_to(ROOT)}: {target}" for page in sorted(pages) for target in _LINK.findall(page.read_text())
            if not (page.parent / target).exists()]


if __name__ == "__main__":
    found = broken_links()
    sys.exit("These links lead nowhere:\n  " + "\n  ".join(found) if found else 0)
