"""Files of an edge that runs as a user of its own: what root changes there must stay readable to that user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def as_owner(file: Path) -> Iterator[Path]:
    """The file, to be read and written as the owner of its folder does; a change only where root asks.

    The path is relative then: systemd keeps the state of a dynamic user under a folder that only root may pass.
    """
    owner = os.stat(file.parent)
    if os.geteuid() != 0 or owner.st_uid == 0:
        yield file
        return
    before = os.getcwd()
    os.chdir(file.parent)
    os.setegid(owner.st_gid)
    os.seteuid(owner.st_uid)
    try:
        yield Path(file.name)
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.chdir(before)
