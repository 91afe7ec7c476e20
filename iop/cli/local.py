"""The nodes that run on this machine: found by their state folders, and asked by signal to start again."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from iop.errors import ConfigError, NoSuchNode
from iop.files import ready_pid
from iop.tap.statelock import NAME, Held, read_held

ANSWER_S = 10.0          # a node that is at work answers at once; one that just starts, when its reactor runs


class LocalNode:
    """One node with its state folder on this machine; called as that folder where its id is not known."""

    def __init__(self, state: Path, node_id: str = "") -> None:
        self.name = node_id or state.name
        self._state = state

    def ask(self) -> Held:
        """Have it start again; what its lock told before. Raises ConfigError when it refuses, NoSuchNode where none is."""
        held = read_held(self._state)
        if held is None or not _signal_node(held.pid):
            raise NoSuchNode(f"No node is running with the state folder {self._state}.", hint="Start it, or name another "
                             "with --state DIR or -c NODE.YAML.")
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            now = self.after(held)
            if now is not None and now.refused and now.asked > held.asked:
                raise ConfigError(f"{self.name} goes on as it was: {now.refused}")
            if now is not None and (now.asked > held.asked or now.instance != held.instance):
                return held
            time.sleep(0.05)
        return held                      # busy, or just starting: a signal is not lost

    def after(self, before: Held) -> Held | None:
        """What its lock tells now. Raises NoSuchNode when its process has ended."""
        held = read_held(self._state)
        if held is not None and not os.path.exists(f"/proc/{held.pid}") and held.pid == before.pid:
            raise NoSuchNode(f"{self.name} has ended.", hint="Its log says why.")
        return held

    def is_ready(self, pid: int) -> bool:
        return ready_pid(self._state / "node.ready.json") == pid


def local_nodes(folder: Path, node_id: str = "") -> list[LocalNode]:
    """The node of a state folder, or the nodes of an `iop up`. Raises NoSuchNode."""
    if (folder / NAME).exists():
        return [LocalNode(folder, node_id)]
    places = sorted(folder.glob(f"node-*/{NAME}"))
    if not places:
        raise NoSuchNode(f"No node has its state in {folder}.", hint="Name its folder with --state DIR, or its configuration "
                         "with -c NODE.YAML; a node of another machine by its id.")
    return [LocalNode(place.parent) for place in places]


def _signal_node(pid: int) -> bool:
    """USR2, to exactly this process and only where it is a node: by a descriptor, since pids are used again."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if b"iop-node" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGUSR2)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
