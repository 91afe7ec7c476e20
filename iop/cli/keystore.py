"""Where an edge of this machine keeps its keys, found by its state folder or its edge.yaml; and how it hears of a change."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from iop.cli.find import default_state
from iop.cli.owner import as_owner
from iop.config import EdgeConfig, load_edge
from iop.errors import ConfigError
from iop.files import ready_pid
from iop.keylimits import NO_LIMITS, KeyLimits
from iop.keys import Key, add_key, load_keys, save_keys


class KeyStore:
    """The keys of one edge, in its keys.yaml."""

    def __init__(self, file: Path, edge: EdgeConfig | None) -> None:
        self.file = file
        self.edge = edge                 # None: there is no edge.yaml beside them
        self._states = [file.parent, *([Path(edge.state)] if edge else [])]

    def load(self) -> list[Key]:
        with as_owner(self.file) as file:
            return load_keys(file)

    def add(self, kind: str, owner: str, scopes: list[str] | None = None, *, not_after: int = 0,
            limits: KeyLimits = NO_LIMITS) -> tuple[Key, str, bool]:
        """A new key, its text, and whether a running edge has been told of it."""
        with as_owner(self.file) as file:
            key, text = add_key(file, kind, owner, scopes, not_after=not_after, limits=limits)
        return key, text, self._reread()

    def save(self, keys: list[Key]) -> bool:
        """Whether a running edge has been told."""
        with as_owner(self.file) as file:
            save_keys(file, keys)
        return self._reread()

    def _reread(self) -> bool:
        """Have the edge that runs with these keys read them again (SIGHUP); False when none is found."""
        for folder in self._states:
            pid = ready_pid(folder / "edge.ready.json")
            if pid is not None and _is_edge(pid):
                os.kill(pid, signal.SIGHUP)
                return True
        return False


def _is_edge(pid: int) -> bool:
    try:
        return b"iop-edge" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def find_keystore(state: str | None) -> KeyStore:
    """By the folder of the edge's state, or of its edge.yaml; `iop up` has both in one, under edge/. Raises ConfigError."""
    folder = (Path(state) if state else default_state()).absolute()
    for beside in (folder / "edge", folder):
        if (beside / "edge.yaml").exists():
            return keystore_of(beside / "edge.yaml")
        if (beside / "keys.yaml").exists():
            return KeyStore(beside / "keys.yaml", None)
    if (folder.parent / "edge.yaml").exists():
        found = keystore_of(folder.parent / "edge.yaml")
        if found.edge and Path(found.edge.state) == folder:
            return found
    raise ConfigError(f"{folder} is not the state folder of an edge.", hint="Name it with --state DIR; `iop up` makes one.")


def keystore_of(edge_file: Path) -> KeyStore:
    """Of the edge that an edge.yaml describes. Raises ConfigError."""
    edge = load_edge(str(edge_file))
    return KeyStore(Path(edge.path(edge.keys)), edge)
