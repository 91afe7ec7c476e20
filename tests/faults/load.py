"""The steady load of a world: runs that produce, and readers that resume by Last-Event-ID. All of it is remembered."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.faults.client import BROKEN, Client, Refused
from tests.faults.witness import ENDINGS, Shown

PRODUCING_S = 1.0        # a run produces when something came of it within this long
SILENCE_S = 20.0         # a stream has a heartbeat every 15 s

WAYS: tuple[tuple[str, ...], ...] = ((), (), (), ("halves",), ("ignore",), ("setsid",), ("quiet-fork",), ("fork", "ignore"),
                                     ("close",), ("scrub", "quiet-fork"))


class Asked:
    """One run that was asked for, from the first try to the end of its readers."""

    def __init__(self, token: str, target: str, ledger: Path | None) -> None:
        self.token = token
        self.target = target
        self.ledger = ledger             # of a program
        self.run_id = ""
        self.began_s = time.monotonic()
        self.cancelled = False
        self.forgotten = False           # history was rolled back, and does not know it
        self.ended = False
        self.shown: list[Shown] = []
        self.shown_s = 0.0

    @property
    def producing(self) -> bool:
        now = time.time()
        if self.ended or not self.run_id:
            return False
        if self.ledger is None:
            return time.monotonic() - self.shown_s < PRODUCING_S
        with suppress(OSError):
            return now - os.stat(self.ledger).st_mtime < PRODUCING_S
        return False


class Load:
    """Keeps `programs` + `streams` runs going until it is told to stop."""

    def __init__(self, client: Client, folder: Path, chance: random.Random, programs: int, streams: int) -> None:
        self.asked: list[Asked] = []
        self.stopping = False
        self.refusals: dict[str, int] = {}
        self._client = client
        self._folder = folder
        self._chance = chance
        self._slots = ["program"] * programs + ["stream"] * streams
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        for what in self._slots:
            self._spawn(self._slot(what))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.result())

    @property
    def producing(self) -> int:
        return sum(asked.producing for asked in self.asked[-60:])

    @property
    def open_runs(self) -> list[Asked]:
        return [asked for asked in self.asked if asked.run_id and not asked.ended]

    async def settled(self, seconds: float) -> bool:
        """Wait until no slot and no reader is left; False when some are, which are then ended."""
        self.stopping = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        left = list(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        return not left

    # --- runs

    async def _slot(self, what: str) -> None:
        await asyncio.sleep(self._chance.random())
        while not self.stopping:
            asked, body = self._program() if what == "program" else self._stream()
            self.asked.append(asked)
            if await self._submit(asked, body):
                readers = 2 if self._chance.random() < 0.2 else 1
                await asyncio.gather(*(self.read(asked, number) for number in range(readers)))
            else:
                await asyncio.sleep(0.3)

    def _program(self) -> tuple[Asked, dict[str, Any]]:
        chance, token = self._chance, f"{len(self.asked):04d}{self._chance.randrange(16 ** 6):06x}"
        rate = chance.choice((40, 60, 100, 100, 150, 400))
        lines = max(20, int(rate * chance.uniform(3, 9)))
        ledger = self._folder / f"{token}.ledger"
        prompt = {"ledger": str(ledger), "token": token, "lines": lines, "rate": rate,
                  "code": chance.choice((0, 0, 0, 3)), "ways": chance.choice(WAYS)}
        return Asked(token, "work", ledger), {"adapter": "cli", "target": "work", "input": {"prompt": json.dumps(prompt)}}

    def _stream(self) -> tuple[Asked, dict[str, Any]]:
        token = f"{len(self.asked):04d}{self._chance.randrange(16 ** 6):06x}"
        return Asked(token, "talk", None), {"adapter": "mock", "target": "talk", "input": {"prompt": f"stream {token}\n"}}

    async def _submit(self, asked: Asked, body: dict[str, Any]) -> bool:
        """Ask until it is accepted, under one Idempotency-Key; False when it is not worth going on."""
        while not asked.run_id:
            try:
                told = await self._client.call("POST", "/api/v1/runs", body, {"Idempotency-Key": asked.token})
                asked.run_id = told["run_id"]
            except Refused as refused:
                self.refusals[refused.code] = self.refusals.get(refused.code, 0) + 1
                if not refused.retryable and refused.status < 500 and refused.code not in ("no_such_target", "queue_full"):
                    raise
                await asyncio.sleep(0.2)
            except BROKEN:
                await asyncio.sleep(0.1)
            if self.stopping and not asked.run_id:
                return False
        return True

    async def cancel(self, asked: Asked) -> bool:
        for _ in range(20):
            try:
                await self._client.call("POST", f"/api/v1/runs/{asked.run_id}/cancel")
            except Refused as refused:
                return refused.status != 404
            except BROKEN:
                await asyncio.sleep(0.2)
            else:
                asked.cancelled = True
                return True
        return False

    # --- readers

    async def read(self, asked: Asked, number: int) -> None:
        """Read a run to its end, however often the stream breaks."""
        chance = random.Random(f"{asked.token} {number}")
        shown = Shown(f"reader {number} of {asked.token}")
        asked.shown.append(shown)
        polls = number == 1 and chance.random() < 0.5
        while not shown.finished:
            try:
                await (self._poll(asked, shown) if polls else self._follow(asked, shown, chance))
            except Refused as refused:
                if refused.status == 404:
                    asked.forgotten = shown.finished = asked.ended = True
                    return
                await asyncio.sleep(0.3)
            except BROKEN:
                await asyncio.sleep(0.1 + 0.2 * chance.random())

    async def _follow(self, asked: Asked, shown: Shown, chance: random.Random) -> None:
        stops_after = chance.randrange(20, 3000)     # a reader that goes away by itself now and then, and comes back
        async for _, event in self._client.stream(f"/api/v1/runs/{asked.run_id}/events", place_of(shown), SILENCE_S):
            self._see(asked, shown, event)
            stops_after -= 1
            if not stops_after:
                return
        if not shown.finished:
            await asyncio.sleep(0.05)

    async def _poll(self, asked: Asked, shown: Shown) -> None:
        page = await self._client.call("GET", f"/api/v1/runs/{asked.run_id}/events?limit=100&after={place_of(shown)}")
        for event in page["events"]:
            self._see(asked, shown, event)
        if len(page["events"]) < 50:
            await asyncio.sleep(0.2)

    def _see(self, asked: Asked, shown: Shown, event: dict[str, Any]) -> None:
        place = event["attempt"], event["seq"]
        shown.events.append((*place, event["type"], json_digest(event)))
        asked.shown_s = time.monotonic()
        if event["type"] == "gap":
            shown.gaps[place] = int(event.get("first_seq", place[1]))
        if event["type"] in ENDINGS:
            shown.finished = asked.ended = True


def place_of(shown: Shown) -> str:
    return "{}.{}".format(*shown.events[-1][:2]) if shown.events else "0.0"


def json_digest(event: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(event, sort_keys=True).encode()).hexdigest()[:16]
