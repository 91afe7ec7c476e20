"""One world's life: load, faults one over the other, a roll-back, the end, and the judgement."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults import evidence
from tests.faults.checker import Finding, Report, check
from tests.faults.kind import NothingThere
from tests.faults.kinds import KINDS
from tests.faults.processes import Nursery, words_of
from tests.faults.rollback import RollBack
from tests.faults.schedule import ROLL_BACK, Plan
from tests.faults.witness import Run
from tests.faults.world import World

BUSY = 5                 # at least so many runs produce when a fault is let loose,
BUSY_S = 6.0             # which is waited for this long
AT_ONCE = 4              # faults under way
TRIES_S = 25.0           # a kind that finds nothing to harm tries again for this long
SETTLE_S = 60.0          # from the last fault to the last ending
LEFT_S = 14.0            # no survivor after 12 s


@dataclass
class Done:
    """One fault that happened."""

    kind: str
    detail: str
    at_s: float
    producing: int


@dataclass
class Result:
    """What became of one world."""

    plan: Plan
    faults: list[Done] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    report: Report = field(default_factory=Report)
    starts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


Script = Callable[[World], Awaitable[list[tuple[str, str]]]]


class Campaign:
    """Lets a plan loose on a world; or a script, which does one thing and returns what it finds, as (kind, detail)."""

    def __init__(self, plan: Plan, folder: Path, nursery: Nursery, server: Any, tell: Callable[[Done], object] = print,
                 script: Script | None = None) -> None:
        self.plan = plan
        self.result = Result(plan)
        self.world = World(folder, nursery, plan.seed, nodes=plan.nodes, server=server, programs=plan.programs,
                           streams=plan.streams, **plan.edge)
        self._script = script
        self._evidence: list[Run] = []
        self._folder = folder
        self._tell = tell
        self._roll_back = RollBack(self.world)
        self._under_way: set[asyncio.Task[None]] = set()
        self._began_s = time.monotonic()

    async def run(self) -> Result:
        world = self.world
        try:
            await world.start()
            world.load.start()
            if self._script is None:
                await self._let_loose()
            else:
                for kind, detail in await self._script(world):
                    self._find(kind, "", detail)
            await self._settle()
            await self._judge()
        except TimeoutError as error:
            self._find("no ending", "", str(error))
        finally:
            await self._end()
        self.result.seconds = time.monotonic() - self._began_s
        return self.result

    def _find(self, kind: str, run_id: str, detail: str) -> None:
        self.result.report.findings.append(Finding(kind, run_id, detail))

    # --- faults

    async def _let_loose(self) -> None:
        chance = self.world.chance
        kinds = [name for name in self.plan.kinds if name != ROLL_BACK]
        copy_at = max(0, len(kinds) - 2) if ROLL_BACK in self.plan.kinds else -1
        for number, name in enumerate(kinds):
            if number == copy_at:
                await self._roll_back.copy()
            while len(self._under_way) >= AT_ONCE:
                await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
            await self._until_busy()
            self._begin(name)
            await asyncio.sleep(chance.uniform(0.15, 1.0))
        if self._under_way:
            await asyncio.wait(self._under_way)
        await self.world.heal()
        if ROLL_BACK in self.plan.kinds:
            await self._until_busy()
            producing = self.world.load.producing
            self._happened(ROLL_BACK, await self._roll_back.restore(), producing)

    def _begin(self, name: str) -> None:
        task = asyncio.get_running_loop().create_task(self._do(name))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _until_busy(self) -> None:
        deadline = time.monotonic() + BUSY_S
        while self.world.load.producing < BUSY and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    async def _do(self, name: str) -> None:
        deadline = time.monotonic() + TRIES_S
        while True:
            producing = self.world.load.producing
            try:
                detail = await KINDS[name](self.world)
            except NothingThere as nothing:
                if time.monotonic() > deadline:
                    self.result.missed.append(f"{name}: {nothing}")
                    return
                await asyncio.sleep(0.3)
            else:
                self._happened(name, detail, producing)
                return

    def _happened(self, name: str, detail: str, producing: int) -> None:
        done = Done(name, detail, time.monotonic() - self._began_s, producing)
        self.result.faults.append(done)
        self._tell(done)

    # --- the end

    async def _settle(self) -> None:
        world = self.world
        await world.heal()
        world.load.stopping = True
        await world.come_back(SETTLE_S)
        await world.load.settled(SETTLE_S)
        await world.wait_for(world.nothing_open, "all runs have ended", SETTLE_S)
        deadline = time.monotonic() + LEFT_S
        while (left := world.programs_left()) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        for pid in left:
            self._find("processes left", "", f"{pid}: {words_of(pid)[:160]}")

    async def _judge(self) -> None:
        world, place = self.world, self.world.place
        told = [asked.run_id for asked in world.load.asked if asked.run_id]
        api = await evidence.read_api(world.client, told)
        late = await world.stop()
        for name in late:
            self._find("processes left", "", f"{name} did not end within 20 s of TERM")
        stored = await asyncio.to_thread(evidence.read_history, place.history, place.history_url)
        ledgers = evidence.read_ledgers(node.ledger for node in place.nodes)
        runs = evidence.runs_of(world.load.asked, stored, ledgers, api, self._roll_back.before, self._roll_back.copied)
        self.result.report.add(await asyncio.to_thread(check, runs))
        guilty = {finding.run_id for finding in self.result.report.findings}
        self._evidence = [run for run in runs if run.run_id in guilty]

    async def _end(self) -> None:
        world = self.world
        for task in list(self._under_way):
            task.cancel()
        await world.load.settled(0.0)
        await world.stop()
        for service in world.services:
            self.result.starts[service.name.partition("-")[0]] += service.starts
        if self.result.report.findings:
            self._keep()
        world.end_programs()
        world.place.remove()
        if not self.result.report.findings:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _keep(self) -> None:
        """What a person needs to look into it: states, logs, ledgers, the faults in their order, the findings."""
        place = self.world.place
        for disk in (place.edge_disk, *(node.disk for node in place.nodes)):
            if disk.small:
                shutil.copytree(disk.folder, disk.folder.with_name(disk.folder.name + ".kept"), dirs_exist_ok=True,
                                ignore=shutil.ignore_patterns("control", "ballast"))
        told = {"plan": vars(self.plan), "faults": [vars(done) for done in self.result.faults],
                "missed": self.result.missed, "findings": [vars(finding) for finding in self.result.report.findings],
                "runs": {asked.run_id or asked.token: asked.token for asked in self.world.load.asked}}
        (self._folder / "findings.json").write_text(json.dumps(told, indent=1))
        for run in self._evidence:
            lines = [f"{name} {event.attempt}.{event.seq} {event.kind} {event.channel} {event.code} {event.data!r}\n"
                     for name in ("before", "history", "late") for event in getattr(run, name)]
            lines += [f"spooled {attempt}.{seq} {digest}\n" for attempt, seq, digest in run.spooled]
            lines += [f"{name} {value!r}\n" for name, value in (("program", run.program), ("rolled", run.rolled))]
            (self._folder / f"{run.run_id}.evidence").write_text("".join(lines))
