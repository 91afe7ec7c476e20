"""``python -m tests.faults.cancels [--tries N] [--seed SEED]``: cancels of programs that do not want to end.

Each is cancelled at a random moment; then nothing of it may be alive, and its one ending has to be true. With
``--kill-supervisors`` their supervisors are killed instead: then something may live on only where the ending says that
this cannot be known. Exit code 1 when something survived.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.processes import Nursery, processes_with, supervisors, words_of
from tests.faults.world import World

AT_ONCE = 6
ENDED_S = 20.0           # from the cancel to the ending
LEFT_S = 12.0            # no survivor after this long
WAYS: tuple[tuple[str, ...], ...] = (
    (), ("ignore",), ("setsid",), ("fork",), ("quiet-fork",), ("scrub",), ("storm",), ("fork", "ignore"),
    ("setsid", "ignore"), ("scrub", "fork"), ("scrub", "quiet-fork", "ignore"), ("scrub", "setsid", "ignore"),
    ("storm", "ignore"), ("fork", "quiet-fork", "setsid", "scrub", "ignore"))


@dataclass
class Tally:
    """What came of all tries."""

    tries: int = 0
    by_way: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    told_left: Counter[str] = field(default_factory=Counter)
    unknown: int = 0         # processes that lived on where the ending said that this cannot be known
    survivors: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)    # from the cancel to the ending


class Cancels:
    """Runs programs on one world and cancels them."""

    def __init__(self, world: World, tries: int, seed: int, kill_supervisors: bool) -> None:
        self._world = world
        self._kill_supervisors = kill_supervisors
        self._chance = random.Random(seed)
        self._left = tries
        self.tally = Tally()

    async def run(self) -> Tally:
        await self._world.start()
        await asyncio.gather(*(self._work() for _ in range(AT_ONCE)))
        return self.tally

    async def _work(self) -> None:
        while self._left > 0:
            self._left -= 1
            number = self.tally.tries
            self.tally.tries += 1
            ways = WAYS[number % len(WAYS)]
            self.tally.by_way[" ".join(ways) or "plain"] += 1
            await self._try(f"{number:04d}{self._chance.randrange(16 ** 8):08x}", ways)

    async def _try(self, token: str, ways: tuple[str, ...]) -> None:
        client, tally = self._world.client, self.tally
        ledger = self._world.place.programs / f"{token}.ledger"
        prompt = {"ledger": str(ledger), "token": token, "lines": 100_000, "rate": 50, "ways": ways}
        told = await client.call("POST", "/api/v1/runs", {
            "adapter": "cli", "target": "work", "input": {"prompt": json.dumps(prompt)}})
        deadline = time.monotonic() + ENDED_S
        while not processes_with(token) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await asyncio.sleep(self._chance.choice((0.0, 0.02, 0.1, 0.3, 1.0)))
        began_s = time.monotonic()
        expected = await self._harm(told["run_id"], token)
        run = await self._ended(told["run_id"], began_s + ENDED_S)
        tally.seconds.append(time.monotonic() - began_s)
        outcome = run.get("outcome") or {}
        tally.endings[f"{run['state']} {outcome.get('code')}"] += 1
        tally.told_left[str(outcome.get("processes_left"))] += 1
        if outcome.get("code") != expected:
            tally.wrong.append(f"{ways}: {run['state']} {outcome.get('code')}: {outcome.get('message')}")
        await self._look_for_survivors(token, ways, outcome.get("processes_left"))

    async def _harm(self, run_id: str, token: str) -> str:
        """The code that the run has to end with."""
        if not self._kill_supervisors:
            await self._world.client.call("POST", f"/api/v1/runs/{run_id}/cancel")
            return "cancelled"
        while not (found := supervisors(token)):  # noqa: ASYNC110  # the program may be between two executions
            await asyncio.sleep(0.01)
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return "supervisor_lost"

    async def _ended(self, run_id: str, deadline: float) -> dict[str, Any]:
        while True:
            run: dict[str, Any] = await self._world.client.call("GET", f"/api/v1/runs/{run_id}")
            if run["ended_at"] or time.monotonic() > deadline:
                return run
            await asyncio.sleep(0.05)

    async def _look_for_survivors(self, token: str, ways: tuple[str, ...], told: object) -> None:
        """At the ending already, where it says that none is left; after 12 s in any case."""
        found = processes_with(token)
        if found and told == 0:
            self.tally.wrong.append(f"{ways}: the ending tells of 0 processes left, and {len(found)} are there")
        deadline = time.monotonic() + LEFT_S
        while found and time.monotonic() < deadline:
            await asyncio.sleep(0.2)
            found = processes_with(token)
        for pid in found:
            if self._kill_supervisors and told == "unknown":
                self.tally.unknown += 1
            else:
                self.tally.survivors.append(f"{ways}: {pid} {words_of(pid)[:120]}")
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


async def run(tries: int, seed: int, kill_supervisors: bool = False) -> Tally:
    """All of it, in a world of its own that is taken down again."""
    folder = Path(tempfile.mkdtemp(prefix="iop-cancels-"))
    nursery = Nursery()
    world = World(folder / "world", nursery, f"cancels {seed}", programs=0, streams=0)
    cancels = Cancels(world, tries, seed, kill_supervisors)
    try:
        return await cancels.run()
    finally:
        await world.stop()
        nursery.stop()
        world.end_programs()
        world.place.remove()
        shutil.rmtree(folder, ignore_errors=True)


def words(tally: Tally, what: str = "cancels") -> str:
    times = sorted(tally.seconds)
    lines = [f"{tally.tries} {what} of programs that do not want to end: {len(tally.survivors)} survivors, "
             f"{len(tally.wrong)} untrue endings", ""]
    lines += [f"  {way:<44}{count:>6}" for way, count in sorted(tally.by_way.items())]
    lines += ["", f"  seconds to the ending: half within {times[len(times) // 2]:.2f}, all within {times[-1]:.2f}"]
    if tally.unknown:
        lines.append(f"  processes that lived on where the ending said that this cannot be known: {tally.unknown}")
    lines += [f"  {text}" for text in (*tally.survivors, *tally.wrong)]
    return "\n".join(lines)


def main(asked_words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.faults.cancels", description=__doc__)
    parser.add_argument("--tries", type=int, default=200, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="SEED")
    parser.add_argument("--kill-supervisors", action="store_true")
    asked = parser.parse_args(asked_words)
    signal.signal(signal.SIGTERM, signal.default_int_handler)     # file systems are unmounted then, too
    tally = asyncio.run(run(asked.tries, asked.seed, asked.kill_supervisors))
    print(words(tally, "killed supervisors" if asked.kill_supervisors else "cancels"))
    return 1 if tally.survivors or tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
