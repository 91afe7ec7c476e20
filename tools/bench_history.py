"""How fast the history commits and reads, with the reactor idle and with it saturated by Python code.

    make bench-history BENCH='[URL] [--seconds S] [--rate BATCHES_PER_S]'

The load is what a busy edge is to the writer's thread: Python that never waits, in turns of a few milliseconds
(docs: performance.md, the GIL convoy). Compare ratios of one run, not numbers of two machines.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable

from twisted.internet import defer, reactor, task

from iop.records import BatchRow, RunQuery, RunRecord
from iop.runs import START, EventId, new_run_id
from iop.store.history import History

BATCH = os.urandom(1200)     # about ten events
TURN_S = 0.004               # of Python in one turn of the saturated reactor
STREAMS = 100


class Feeder:
    """Appends batches to STREAMS runs at a rate, or as fast as they are committed with `window` of them open."""

    def __init__(self, history: History, rate: int, window: int = 4000) -> None:
        self.history = history
        self.runs = [[new_run_id(), 0] for _ in range(STREAMS)]
        self.rate, self.window = rate, window
        self.sent = self.committed = 0
        self.latencies: list[float] = []
        self.started = time.perf_counter()

    def turn(self) -> None:
        due = int((time.perf_counter() - self.started) * self.rate) if self.rate else self.sent + 256
        while self.sent < due and self.sent - self.committed < self.window:
            run = self.runs[self.sent % STREAMS]
            run[1] += 1
            self.sent += 1
            appended = self.history.append([BatchRow(run[0], 1, run[1], run[1], BATCH)])
            appended.addCallback(self.done, time.perf_counter())

    def done(self, _: object, since: float) -> None:
        self.committed += 1
        self.latencies.append(time.perf_counter() - since)


def burn(seconds: float) -> None:
    """Python, and nothing that lets go of the interpreter."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        sum(range(200))


async def measure(name: str, history: History, seconds: float, rate: int, busy: bool) -> float:
    feeder = Feeder(history, rate)
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        feeder.turn()
        if busy:
            burn(TURN_S)

    await repeat(turn, seconds)
    spent = time.perf_counter() - feeder.started
    backlog = history.backlog()
    while history.backlog():
        await task.deferLater(reactor, 0.001)
    late = sorted(feeder.latencies)
    done = feeder.sent - backlog
    print(f"{name:28} {done / spent:9.0f} batches/s of {feeder.sent / spent:9.0f}"
          f"   commit p50 {late[len(late) // 2] * 1e3:7.1f} ms"
          f"   p99 {late[len(late) * 99 // 100] * 1e3:7.1f} ms   turns/s {turns / spent:7.0f}", flush=True)
    return done / spent


async def repeat(turn: Callable[[], None], seconds: float) -> None:
    """Once each turn of the reactor, for so long."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        turn()
        await task.deferLater(reactor, 0)


async def measure_reads(name: str, history: History, run_id: str, busy: bool) -> float:
    """Read one run from its start, a megabyte at a time, as a reader does that catches up."""
    loop = task.LoopingCall(burn, TURN_S)
    if busy:
        loop.start(0)
    since = time.perf_counter()
    count, after = 0, START
    while page := await history.batches(run_id, after, 1 << 20):
        count += len(page)
        after = EventId(1, count)
    spent = time.perf_counter() - since
    if busy:
        loop.stop()
    print(f"{name:28} {count / spent:9.0f} batches/s, {count} read", flush=True)
    return count / spent


async def measure_places(history: History, count: int) -> None:
    """The first 64 KiB behind the start, the middle and the end of a long run, and a page of a long list of runs."""
    run_id = new_run_id()
    for start in range(1, count, 10_000):
        await defer.gatherResults([history.append([BatchRow(run_id, 1, seq, seq, BATCH)])
                                   for seq in range(start, start + 10_000)])
    for name, seq in (("start", 0), ("middle", count // 2), ("end", count - 60)):
        since = time.perf_counter()
        for _ in range(50):
            await history.batches(run_id, EventId(1, seq), 1 << 16)
        print(f"64 KiB at the {name:6} of {count} batches: {(time.perf_counter() - since) / 50 * 1e3:6.2f} ms", flush=True)
    records = [RunRecord(run_id=new_run_id(), state="completed", adapter="mock", target=f"t{index % 10}",
                         output_text="x" * 2000) for index in range(10_000)]
    await defer.gatherResults([history.create_run(record) for record in records])
    for query in (RunQuery(), RunQuery(target="t3"), RunQuery(state="failed")):
        since = time.perf_counter()
        for _ in range(20):
            await history.runs(query)
        words = query.target or query.state or "any"
        print(f"50 of 10,000 runs ({words:6}): {(time.perf_counter() - since) / 20 * 1e3:14.2f} ms", flush=True)


async def main(options: argparse.Namespace, folder: str) -> None:
    history = History(options.url or f"sqlite:///{folder}/history.db", reactor)
    await history.open()
    for rate in (options.rate, 0):
        words = f"{rate} batches/s asked" if rate else "as many as it takes"
        print(f"-- {words}, {len(BATCH)} bytes each, {STREAMS} runs")
        idle = await measure("reactor idle", history, options.seconds, rate, busy=False)
        busy = await measure("reactor saturated", history, options.seconds, rate, busy=True)
        print(f"{'saturated / idle':28} {busy / idle:9.2f}")
    run_id = new_run_id()
    await defer.gatherResults([history.append([BatchRow(run_id, 1, seq, seq, BATCH)]) for seq in range(1, 10_001)])
    idle = await measure_reads("read, reactor idle", history, run_id, busy=False)
    busy = await measure_reads("read, reactor saturated", history, run_id, busy=True)
    print(f"{'saturated / idle':28} {busy / idle:9.2f}")
    await measure_places(history, 100_000)
    await history.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rate", type=int, default=10_000)
    with tempfile.TemporaryDirectory() as temporary:
        arguments = parser.parse_args()
        task.react(lambda _: defer.Deferred.fromCoroutine(main(arguments, temporary)))
