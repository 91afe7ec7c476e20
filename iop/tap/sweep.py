"""What a node that has ended left running: ended too. For a stop that the node itself did not bring to its end."""

from __future__ import annotations

import os
from collections.abc import Mapping

from iop.config import NodeConfig
from iop.errors import CONFIG_REFUSED, Conflict
from iop.files import take_lock
from iop.node.orphans import end_all
from iop.tap.statelock import NAME, node_marker

# $SERVICE_RESULT of systemd.exec(5) after which Restart=on-failure starts the node again, which takes up what it left.
CRASHES = frozenset(("signal", "core-dump", "watchdog", "oom-kill", "exit-code"))


def comes_back(environment: Mapping[str, str]) -> bool:
    """Whether systemd, whose ExecStopPost= this is, starts the node again. No where there is no systemd."""
    return environment.get("SERVICE_RESULT") in CRASHES and environment.get("EXIT_STATUS") != str(CONFIG_REFUSED)


def sweep(config: NodeConfig) -> int:
    """How many processes could not be ended. Blocking, 14 s at most. Raises Conflict while a node uses the state folder."""
    if not os.path.isdir(config.state):
        return 0
    lock = take_lock(os.path.join(config.state, NAME))
    if lock is None:
        raise Conflict(f"A node is running with the state folder {config.state}.", hint="Stop it first: it ends its programs "
                       "itself, and tells how.")
    try:
        return end_all(f"IOP_NODE={node_marker(config)}")
    finally:
        os.close(lock)
