"""twistd as ``python -m iop.tap``: the same Python for every process of `iop up`, wherever its scripts were put."""

from __future__ import annotations

import sys

from twisted.scripts.twistd import run

if __name__ == "__main__":
    sys.argv[0] = "twistd"
    sys.exit(run())
