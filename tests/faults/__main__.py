"""``python -m tests.faults [--faults N] [--seed SEED] [--json]``: worlds in sequence until N faults have happened.

Exit code 0 when nothing was found, 1 when something was; the folders of worlds with findings are kept and named.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.faults.campaign import Campaign, Done, Result
from tests.faults.kinds import KINDS
from tests.faults.processes import ROOT, Nursery
from tests.faults.schedule import plan
from tests.faults.table import as_json, table
from tests.postgres import OwnPostgreSQL, _binaries

PROGRESS_S = 10.0


class Chaos:
    """All worlds of one seed."""

    def __init__(self, count: int, seed: int, *, tree: Path = ROOT, kinds: list[str] | None = None,
                 quiet: bool = False) -> None:
        self.count = count
        self.seed = seed
        self.results: list[Result] = []
        self.folder = Path(tempfile.mkdtemp(prefix=f"iop-chaos-{seed}-"))
        self._tree = tree
        self._kinds = kinds or sorted(KINDS)
        self._quiet = quiet
        self._happened = 0
        self._began_s = time.monotonic()
        self._running: Campaign | None = None

    async def run(self) -> list[Result]:
        binaries = _binaries()
        plans = plan(self.seed, self.count, self._kinds, binaries is not None and self.count > 31)
        nursery = Nursery(self._tree)
        server = OwnPostgreSQL(binaries) if binaries and any(one.postgresql for one in plans) else None
        telling = asyncio.get_running_loop().create_task(self._tell_progress())
        try:
            for number, one in enumerate(plans):
                folder = self.folder / f"world-{number}"
                self._running = Campaign(one, folder, nursery, server if one.postgresql else None, self._done)
                result = await self._running.run()
                self.results.append(result)
                for finding in result.report.findings[:10]:
                    self._say(f"chaos: {finding.kind}: run {finding.run_id or '-'}: {finding.detail}; see {folder}")
        finally:
            telling.cancel()
            nursery.stop()
            if server is not None:
                server.clean()
        if not any(result.report.findings for result in self.results):
            self.folder.rmdir()
        return self.results

    def _done(self, done: Done) -> None:
        self._happened += 1

    def _say(self, text: str) -> None:
        if not self._quiet:
            print(text, file=sys.stderr, flush=True)

    async def _tell_progress(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_S)
            findings = sum(len(result.report.findings) for result in self.results)
            events = sum(result.report.counts["events"] for result in self.results)
            producing = self._running.world.load.producing if self._running is not None else 0
            self._say(f"chaos: {time.monotonic() - self._began_s:5.0f} s, {self._happened} of {self.count} faults, "
                      f"{producing} runs produce, {events:,} events checked, {findings} findings")


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.faults", description=__doc__)
    parser.add_argument("--faults", type=int, default=1000, metavar="N")
    parser.add_argument("--seed", type=int, default=None, metavar="SEED", help="default: a new one, which is printed")
    parser.add_argument("--plan", action="store_true", help="only print the schedule of this seed")
    parser.add_argument("--only", default="", metavar="KIND,KIND", help="only these kinds")
    parser.add_argument("--tree", type=Path, default=ROOT, metavar="DIR", help="which iop/ runs; default: this one")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(words)
    signal.signal(signal.SIGTERM, signal.default_int_handler)     # file systems are unmounted then, too
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(1_000_000)
    kinds = [name.strip() for name in asked.only.split(",")] if asked.only else None
    print(f"chaos: seed {seed}, {asked.faults} faults", file=sys.stderr, flush=True)
    if asked.plan:
        for one in plan(seed, asked.faults, kinds or sorted(KINDS), _binaries() is not None and asked.faults > 31):
            print(f"{one.seed} {'PostgreSQL' if one.postgresql else 'SQLite'}, {one.nodes} nodes: {', '.join(one.kinds)}")
        return 0
    chaos = Chaos(asked.faults, seed, tree=asked.tree.absolute(), kinds=kinds)
    began_s = time.monotonic()
    results = asyncio.run(chaos.run())
    told: dict[str, Any] = as_json(seed, results, time.monotonic() - began_s)
    print(json.dumps(told, indent=1) if asked.json else table(told))
    if told["findings"]:
        print(f"chaos: kept in {chaos.folder}; again with SEED={seed}", file=sys.stderr)
    return 1 if told["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
