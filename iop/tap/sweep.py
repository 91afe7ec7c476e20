"""What a node that has ended left running: ended too. For a stop that the node itself did not bring to its end."""

from __future__ import annotations

import os
from collections.abc import Mapping

from iop.config import NodeConfig
from iop.errors import Conflict
from iop.exits import CONFIG_REFUSED
from iop.files import take_lock
from iop.node.orphans import end_all
from iop.tap.statelock import NAME, marker_of

# $SERVICE_RESULT of systemd.exec(5) after which Restart=on-failure starts the node again, which takes up what it left.
CRASHES = frozenset(("signal", "core-dump", "watchdog", "oom-kill", "exit-code"))


def comes_back(environment: Mapping[str, str]) -> bool:
    """Whether systemd, whose ExecStopPost= this is, starts the node again. No where there is no systemd."""
    return environment.get("SERVICE_RESULT") in CRASHES and environment.get("EXIT_STATUS") != str(CONFIG_REFUSED)


def sweep(config: NodeConfig) -> int:
    """How many processes could not be ended. Blocking, 14 s at most. Raises Conflict while a node uses the state folder."""
    return sweep_folder(config.node.id, config.state)


def sweep_folder(node_id: str, state: str) -> int:
    """The same where the configuration cannot be read, which may be why the node is not to come back."""
    if not os.path.isdir(state):
        return 0
    lock = take_lock(os.path.join(state, NAME))
    if lock is None:
        raise Conflict(f"A node is running with the state folder {state}.", hint="Stop it first: it ends its programs "
                       "itself, and tells how.")
    try:
        return end_all(f"IOP_NODE={marker_of(node_id, state)}")
    finally:
        os.close(lock)
