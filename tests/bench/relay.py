"""The edge's relay (node -> edge -> N streaming clients, history on) against the bare relay of floor/, in one run.

Events per second of one core (events / CPU seconds of the edge, its history thread's included until all is acknowledged) of
both, and their ratio; and how long the edge's reactor stands still meanwhile.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable

from edges import HERE, Edge, cpu_seconds, end, line_of, pinned
from rows import Rows

FLOOR_PYTHON = os.environ.get("BENCH_PYTHON", sys.executable)   # has orjson
CASES = ((1, 1), (100, 1), (1000, 1), (1, 32), (100, 32), (1000, 32))
EVENTS = {1: 60_000, 32: 320_000}


def ours(streams: int, total: int, per_batch: int, *options: str, begin: Callable[[], object] = bool) -> dict[str, float]:
    """A real edge: events per second of one core, and what its probe saw. `begin` is called when all is ready."""
    with tempfile.TemporaryDirectory(prefix="iop-relay-") as folder:
        edge = Edge(folder, *options)
        children: list[subprocess.Popen] = []
        try:
            node = pinned("1", sys.executable, f"{HERE}/node.py", str(edge.link), edge.token, str(streams), str(total),
                          str(per_batch))
            children.append(node)
            line_of(node)
            edge.wait_model()
            readers = pinned("1", sys.executable, f"{HERE}/readers.py", str(edge.http), edge.key, str(streams), "chat")
            children.append(readers)
            if line_of(readers) != "ready" or line_of(node) != "asked":
                raise SystemExit(f"not all {streams} streams were opened")
            begin()
            first = edge.ask()
            before = cpu_seconds(edge.pid)
            for child in (readers, node):
                child.stdin.write("\n")
                child.stdin.flush()
            count, wall = line_of(readers).split()
            if int(count) < total or not line_of(node).startswith("sent"):
                raise SystemExit(f"readers got {count} of {total} events")
            spent = cpu_seconds(edge.pid) - before
            last = edge.ask()
            return {"per_core": int(count) / spent, "per_s": int(count) / float(wall), **last,
                    "reactor_us": 1e6 * (last["reactor_s"] - first["reactor_s"]) / int(count)}
        finally:
            end(*children)
            edge.stop()


def floor(streams: int, total: int, per_batch: int) -> float:
    """Events per second of one core of the bare relay."""
    code = (f"import sys; sys.path.insert(0, {HERE + '/floor'!r}); import relay; "
            f"print(relay.run('read', 'direct', 'hand', 'epoll', {streams}, 0, {total}, {per_batch}, "
            f"{'batchf' if per_batch > 1 else 'ev'!r}, 'count')['cpu_us'])")
    printed = subprocess.run([FLOOR_PYTHON, "-c", code], capture_output=True, text=True, check=True).stdout
    return 1e6 / float(printed.split()[-1])


def measure(rows: Rows, rounds: int = 3) -> None:
    found, lags = {}, []
    for streams, per_batch in CASES:
        total = EVENTS[per_batch]
        tries = [(floor(streams, total, per_batch), ours(streams, total, per_batch)) for _ in range(rounds)]
        bare = statistics.median(one for one, _ in tries)
        iop = found[streams, per_batch] = statistics.median(one["per_core"] for _, one in tries)
        lags.append([statistics.median(one[name] for _, one in tries) for name in ("p99_ms", "cpu_p99_ms")])
        rows.at_least(f"relay / floor, {streams:,} streams, batches of {per_batch}", 100 * iop / bare, "%", 40,
                      f"{iop:,.0f} of {bare:,.0f} events/s a core", floor=bare, iop=iop)
    rows.at_least("events/s, 1,000 streams / 1 stream", found[1000, 1] / found[1, 1], "", 0.25,
                  f"with batches of 32: {found[1000, 32] / found[1, 32]:.2f}")
    wall, worked = max(lags)
    rows.at_most("reactor lag p99 under the relay's full load", wall, "ms", 50,
                 f"the worst of these cases; {worked:.0f} ms of it the reactor's own work, the rest waits for a core",
                 lags=lags)


if __name__ == "__main__":
    measure(Rows(), int(sys.argv[1]) if len(sys.argv) > 1 else 3)
