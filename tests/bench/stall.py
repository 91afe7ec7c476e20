"""A reader that takes nothing of a run of 200 MB: what that costs the edge, and its 99 neighbours.

The same load twice: 99 paced runs, each with a reader, and a large one, whose reader takes all in the one case and nothing
in the other. Each paced event carries the time when it was sent; how old it is when it is read is the lag.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile

from edges import HERE, Edge, end, line_of, pinned, rss_mb
from rows import Rows

NEIGHBOURS, LARGE_MB, EVENTS, PERIOD_S = 99, 200, 250, 0.1


def run(stalls: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="iop-stall-") as folder:
        edge = Edge(folder)
        children: list[subprocess.Popen] = []
        try:
            node = pinned("1", sys.executable, f"{HERE}/pacednode.py", str(edge.link), edge.token, str(NEIGHBOURS),
                          str(EVENTS), str(PERIOD_S), str(LARGE_MB))
            children.append(node)
            line_of(node)
            edge.wait_model()
            large = pinned("1", sys.executable, f"{HERE}/pacedreaders.py", str(edge.http), edge.key, "1", "0",
                           "stall" if stalls else "read")
            children.append(large)
            line_of(large)
            readers = pinned("1", sys.executable, f"{HERE}/pacedreaders.py", str(edge.http), edge.key, str(NEIGHBOURS),
                             str(EVENTS), "read")
            children.append(readers)
            if line_of(readers) != "ready" or line_of(node) != "asked":
                raise SystemExit("not all streams were opened")
            node.stdin.write("\n")
            node.stdin.flush()
            memory = [rss_mb(edge.pid)]
            while (told := line_of(node)) != "sent":
                memory.append(rss_mb(edge.pid))      # it tells each second
                large_mb = float(told)
            count, p50, p99 = line_of(readers).split()
            if int(count) < NEIGHBOURS * EVENTS or large_mb < LARGE_MB * 0.99:
                raise SystemExit(f"{count} events and {large_mb} MB came through")
            memory.append(rss_mb(edge.pid))
            return {"grown_mb": max(memory) - memory[0], "p50_ms": float(p50), "p99_ms": float(p99)}
        finally:
            end(*children)
            edge.stop()


def measure(rows: Rows, rounds: int = 3) -> None:
    tries = [(run(stalls=False), run(stalls=True)) for _ in range(rounds)]
    read, stalled = ({name: statistics.median(one[name] for one in column) for name in column[0]}
                     for column in zip(*tries, strict=True))
    ratio = statistics.median(one["p99_ms"] / other["p99_ms"] for other, one in tries)
    rows.at_most("a reader that stalls on 200 MB: the edge grows", stalled["grown_mb"] - read["grown_mb"], "MB", 10,
                 f"by {stalled['grown_mb']:.1f} MB in all, and by {read['grown_mb']:.1f} MB where the reader takes all of it")
    rows.at_most("its 99 neighbours' p99 / without it", ratio, "x", 2,
                 f"{stalled['p99_ms']:.0f} ms, and {read['p99_ms']:.0f} ms where the reader takes all of it")


if __name__ == "__main__":
    measure(Rows(), int(sys.argv[1]) if len(sys.argv) > 1 else 3)
