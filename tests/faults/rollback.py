"""A history that is put back to an older copy of itself while the edge is down."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.faults import evidence
from tests.faults.evidence import Stored
from tests.faults.place import Place
from tests.faults.world import World


class RollBack:
    """`copy()` some time before `restore()`; `copied` and `before` are what the database had at these two moments."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._copied_s = 0.0
        self.copied: Stored | None = None
        self.before: Stored | None = None

    async def copy(self) -> None:
        await self._edge_down()
        await asyncio.to_thread(self._keep)
        self._copied_s = time.monotonic()
        self.copied = await asyncio.to_thread(self._read)
        self._world.edge.wanted = True

    async def restore(self) -> str:
        if self.copied is None:
            await self.copy()
            await asyncio.sleep(1.0)
        await self._edge_down()
        self.before = await asyncio.to_thread(self._read)
        await asyncio.to_thread(self._put_back)
        self._world.edge.wanted = True
        return f"{time.monotonic() - self._copied_s:.1f} s back"

    async def _edge_down(self) -> None:
        edge = self._world.edge
        edge.wanted = False
        edge.kill()
        while edge.alive:  # noqa: ASYNC110  # a process of another parent
            await asyncio.sleep(0.01)

    @property
    def _place(self) -> Place:
        return self._world.place

    @property
    def _older(self) -> Path:
        return self._place.folder / "older"

    def _read(self) -> Stored:
        return evidence.read_history(self._place.history, self._place.history_url)

    def _keep(self) -> None:
        if self._place.history_url:
            self._on_server('CREATE DATABASE "{name}_older" TEMPLATE "{name}"')
        else:
            self._older.mkdir(exist_ok=True)
            evidence.copy_database(self._place.history, self._older)

    def _put_back(self) -> None:
        if self._place.history_url:
            self._on_server('DROP DATABASE "{name}" WITH (FORCE)')
            self._on_server('ALTER DATABASE "{name}_older" RENAME TO "{name}"')
            return
        for file in self._place.edge_folder.glob("history.db*"):
            file.unlink()
        evidence.copy_database(self._older / self._place.history.name, self._place.edge_folder)

    def _on_server(self, statement: str) -> None:
        from sqlalchemy.engine import make_url

        name = make_url(self._place.history_url).database
        for other in range(50):          # sessions of the killed edge may take a moment to go
            try:
                self._world.server.execute(statement.format(name=name))
                return
            except Exception:
                if other == 49:
                    raise
                time.sleep(0.1)
