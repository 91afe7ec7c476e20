"""What a later start of the node must know of a model server that runs: a note on the disk, written before its start."""

from __future__ import annotations

import os

import msgspec

from iop.files import write_private
from iop.servers import ServerSpec

PREFIX = "server-"                   # of the id under which the spawner has it, among those of runs


class Note(msgspec.Struct, frozen=True):
    """How it was started."""

    spec: ServerSpec
    port: int
    attempt: int
    kept: int = 0                    # up to here its journal is in the log, in bytes


def spawn_id(spec: ServerSpec) -> str:
    """What its program is called among those of the node's runs."""
    return PREFIX + spec.id


def write_note(folder: str, note: Note) -> None:
    """Raises OSError."""
    write_private(_file(folder), msgspec.json.encode(note))


def read_note(folder: str) -> Note | None:
    """None where there is none that can be read."""
    try:
        with open(_file(folder), "rb") as stream:
            return msgspec.json.decode(stream.read(), type=Note)
    except (OSError, msgspec.MsgspecError, ValueError):
        return None


def _file(folder: str) -> str:
    return os.path.join(folder, "server.json")
