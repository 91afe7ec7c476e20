"""A node's state folder is one node's: its lock, what the lock's file tells, and the marker of what that node starts."""

from __future__ import annotations

import hashlib
import os
import secrets

import msgspec

from iop.config import NodeConfig
from iop.files import take_lock

NAME = "node.lock"


def node_marker(config: NodeConfig) -> str:
    """What marks the programs of a node, over its restarts: its id, and which state folder it is of."""
    return marker_of(config.node.id, config.state)


def marker_of(node_id: str, state: str) -> str:
    """The same for who has no configuration that can be read."""
    return f"{node_id}.{hashlib.sha256(os.path.realpath(state).encode()).hexdigest()[:16]}"


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds the lock. `instance` is another one after each start; `asked` counts the restarts that were asked of it."""

    pid: int
    instance: str
    asked: int = 0
    refused: str = ""                # why the last one was not begun


class StateLock:
    """One node a state folder: a second one would end the first one's programs as orphans."""

    def __init__(self, state: str) -> None:
        self._file = os.path.join(state, NAME)
        self._descriptor: int | None = None
        self._held = Held(pid=os.getpid(), instance=secrets.token_hex(8))

    @property
    def instance(self) -> str:
        return self._held.instance

    def take(self) -> bool:
        """Whether it is ours now. It is let go of with the process, and with its exec."""
        self._descriptor = take_lock(self._file)
        if self._descriptor is not None:
            self._write()
        return self._descriptor is not None

    def restart_asked(self, refused: str = "") -> None:
        self._held = msgspec.structs.replace(self._held, asked=self._held.asked + 1, refused=refused)
        self._write()

    def _write(self) -> None:
        if self._descriptor is not None:
            data = msgspec.json.encode(self._held)
            os.pwrite(self._descriptor, data, 0)     # in place: a new file would not be the locked one
            os.ftruncate(self._descriptor, len(data))


def read_held(state: str | os.PathLike[str]) -> Held | None:
    """What the file tells; None where there is none, or it is just being written. Its writer may be gone."""
    try:
        with open(os.path.join(state, NAME), "rb") as stream:
            return msgspec.json.decode(stream.read(), type=Held)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
