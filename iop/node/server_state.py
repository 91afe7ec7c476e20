"""The states of a model server of the node; iop.node.server has their chart. Pure."""

from __future__ import annotations

from iop.servers import COLD, STARTING, WARM

QUEUED, DOUBTED, RESTING, STOPPING, FAILED = "queued", "doubted", "resting", "stopping", "failed"

HOLDING_MEMORY = frozenset((STARTING, WARM, DOUBTED, RESTING, STOPPING))
LOOKED_AT = frozenset((STARTING, DOUBTED))           # until it answers

_TOLD = {COLD: COLD, WARM: WARM, DOUBTED: WARM, STOPPING: COLD}


def as_told(state: str) -> str:
    """In one of the words of IServers.state(); for FAILED there is a sentence instead."""
    return _TOLD.get(state, STARTING)


def told_meanwhile(name: str, state: str) -> str:
    """What is told to who waits for it, behind the word `loading`."""
    if state in LOOKED_AT:
        return name
    return f"{name}, which ended and is started again" if state == RESTING else f"{name}, which is to be started"
