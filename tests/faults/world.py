"""One world: an edge and nodes behind proxies as real processes, a keeper that starts them again, and the load."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.faults import processes
from tests.faults.client import BROKEN, Client, Refused
from tests.faults.load import Load
from tests.faults.place import Place
from tests.faults.processes import Nursery, Service
from tests.faults.proxy import Proxy

READY_S = 40.0
STOP_S = 21.0            # a service ends within 20 s of TERM


class World:
    """Put together by `start()`, taken apart by `stop()`; in between, `kinds.py` does things to it."""

    def __init__(self, folder: Path, nursery: Nursery, seed: str, *, nodes: int = 2, server: Any = None,
                 programs: int = 8, streams: int = 2, **edge_settings: Any) -> None:
        self.chance = random.Random(seed)
        self.server = server             # a PostgreSQL, when the history is there
        self.place = Place(folder, nodes, server.new_database() if server is not None else "")
        self.proxies = [Proxy(self.place.link_port, self.chance.randrange(1 << 30)) for _ in self.place.nodes]
        self.edge_settings = edge_settings
        self.generation = 0
        place = self.place
        self.edge = Service("edge", nursery, ["iop-edge", "-c", str(place.config)], place.edge_folder, place.edge_log,
                            place.environment())
        self.nodes = [Service(node.name, nursery, ["iop-node", "-c", str(node.config)], node.disk.folder, node.log,
                              node.environment()) for node in place.nodes]
        self.client = Client(place.http_port, place.api_key)
        self.load = Load(self.client, place.programs, self.chance, programs, streams)
        self._keeper: asyncio.Task[None] | None = None

    @property
    def services(self) -> list[Service]:
        return [self.edge, *self.nodes]

    async def start(self) -> None:
        place = self.place
        place.write_edge(**self.edge_settings)
        for node, proxy in zip(place.nodes, self.proxies, strict=True):
            place.write_node(node, await proxy.start())
        self.edge.start()
        await self.wait_for(self.edge_answers, "the edge answers")
        for node in self.nodes:
            node.start()
        self._keeper = asyncio.get_running_loop().create_task(self._keep())
        await self.wait_for(self.nodes_up, "the nodes are up")

    async def _keep(self) -> None:
        """Start again what died, as systemd or `iop up` would."""
        while True:
            for service in self.services:
                if service.wanted and not service.alive:
                    await asyncio.sleep(self.chance.uniform(0.0, 0.3))
                    if service.wanted and not service.alive:
                        service.start()
            await asyncio.sleep(0.05)

    async def edge_answers(self) -> bool:
        try:
            await self.client.call("GET", "/readyz", seconds=2.0)
        except (*BROKEN, Refused):
            return False
        return True

    async def nodes_up(self) -> bool:
        return sorted(await self.nodes_in("up")) == [node.name for node in self.nodes]

    async def nodes_in(self, state: str) -> list[str]:
        try:
            told = await self.client.call("GET", "/api/v1/nodes")
        except (*BROKEN, Refused):
            return []
        return [node["node_id"] for node in told["nodes"] if node["state"] == state]

    async def nothing_open(self) -> bool:
        """Also a run whose readers saw an ending that a roll-back took."""
        try:
            for state in ("queued", "placed", "running", "disconnected"):
                if (await self.client.call("GET", f"/api/v1/runs?state={state}&limit=1"))["runs"]:
                    return False
        except (*BROKEN, Refused):
            return False
        return True

    async def wait_for(self, condition: Any, what: str, seconds: float = READY_S) -> float:
        """Seconds that it took. Raises TimeoutError."""
        began = time.monotonic()
        while not await condition():
            if time.monotonic() - began > seconds:
                raise TimeoutError(f"not within {seconds:.0f} s: {what}; see {self.place.logs}")
            await asyncio.sleep(0.05)
        return time.monotonic() - began

    # --- the end

    async def heal(self) -> None:
        """Undo all that a fault left, and wait until all are linked again."""
        for proxy in self.proxies:
            proxy.heal()
        for disk in (self.place.edge_disk, *(node.disk for node in self.place.nodes)):
            disk.free()
        for arm in (self.place.arm, *(node.arm for node in self.place.nodes)):
            arm.disarm()
        for service in self.services:
            service.wanted = True
            if service.stopped:
                service.signal(signal.SIGCONT)

    async def come_back(self, seconds: float) -> float:
        """Wait until all is up; nodes that wait for their next try to dial are told to hurry, as an operator would."""
        began = time.monotonic()
        while not await self.nodes_up():
            if time.monotonic() - began > seconds:
                raise TimeoutError(f"not all nodes are back after {seconds:.0f} s; see {self.place.logs}")
            await asyncio.sleep(0.3)
            for node in self.nodes:
                if time.monotonic() - began > 3.0:
                    node.signal(signal.SIGHUP)
        return time.monotonic() - began

    async def stop(self) -> list[str]:
        """End the services with TERM, the edge last; what did not end in time with KILL. Returns the names of those."""
        if self._keeper is not None:
            self._keeper.cancel()
        for service in self.services:
            service.wanted = False
        late = [*await self._end_of(self.nodes), *await self._end_of([self.edge])]
        for proxy in self.proxies:
            proxy.stop()
        return late

    async def _end_of(self, services: list[Service]) -> list[str]:
        for service in services:
            service.signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        late = []
        for service in services:
            while service.alive and time.monotonic() < deadline:  # noqa: ASYNC110  # a process of another parent
                await asyncio.sleep(0.05)
            if service.alive:
                late.append(service.name)
                service.kill()
        return late

    def end_programs(self) -> None:
        """What a failed world leaves is ended by us."""
        for pid in self.programs_left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def programs_left(self) -> list[int]:
        """Processes of this world that are none of its services."""
        ours = {service.pid for service in self.services}
        return [pid for pid in processes.processes_with(str(self.place.folder)) if pid not in ours]
