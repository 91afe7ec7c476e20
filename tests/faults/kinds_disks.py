"""The kinds of faults of disks and databases. The roll-back, at a world's end, is in rollback.py."""

from __future__ import annotations

import asyncio
import fcntl
import time
from pathlib import Path

from tests.faults.kind import NothingThere, kind
from tests.faults.world import World


@kind("history disk full")
async def history_full(world: World) -> str:
    disk = world.place.edge_disk
    if not disk.small or world.place.history_url:
        raise NothingThere("the history is on no small disk")
    seconds = world.chance.uniform(0.5, 2.5)
    disk.fill()
    await asyncio.sleep(seconds)
    disk.free()
    return f"{seconds:.1f} s"


@kind("spool disk full")
async def spool_full(world: World) -> str:
    place = world.chance.choice(world.place.nodes)
    if not place.disk.small:
        raise NothingThere("the node's state is on no small disk")
    seconds = world.chance.uniform(0.5, 2.5)
    place.disk.fill()
    await asyncio.sleep(seconds)
    place.disk.free()
    return f"{place.name} {seconds:.1f} s"


@kind("database restarted")
async def database_restarted(world: World) -> str:
    """PostgreSQL crashes and comes back; an SQLite file is locked by somebody else meanwhile."""
    seconds = world.chance.uniform(0.2, 1.5)
    server = world.server
    if server is None:
        if not world.place.shared_file.exists():
            raise NothingThere("no edge has opened it")
        return await asyncio.to_thread(lock_file, world.place.shared_file, seconds)
    how = world.chance.choice((server.kill, server.stop))
    await asyncio.to_thread(how)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(server.start)
    return f"PostgreSQL, {seconds:.1f} s away"


def lock_file(file: Path, seconds: float) -> str:
    """Hold the write lock of a WAL as another connection would (sqlite.org/walformat.html: byte 120 of the -shm file).

    No real connection: this SQLite can corrupt a WAL that several use.
    """
    with file.open("r+b") as shared:
        try:
            fcntl.lockf(shared, fcntl.LOCK_EX, 1, 120)
        except OSError as error:
            raise NothingThere(str(error)) from None
        time.sleep(seconds)
    return f"SQLite locked for {seconds:.1f} s"
