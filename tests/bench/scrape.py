"""How long a scrape of 10,000 series holds up the edge's reactor."""

from __future__ import annotations

import statistics
import tempfile
import time

from edges import Edge
from rows import Rows

SERIES = 10_000


def measure(rows: Rows, scrapes: int = 15) -> None:
    with tempfile.TemporaryDirectory(prefix="iop-scrape-") as folder:
        edge = Edge(folder, "--series", str(SERIES), "--period", "1")
        try:
            quiet, blocked, took = [], [], []
            for _ in range(scrapes):
                edge.ask()
                time.sleep(0.3)
                quiet.append(edge.ask()["worst_ms"])
                begun = time.perf_counter()
                text = edge.get("/metrics")
                took.append(time.perf_counter() - begun)
                blocked.append(edge.ask())
            if text.count(b"\niop_runs_ended_total{") < SERIES:
                raise SystemExit("the scrape does not hold the series")
        finally:
            edge.stop()
    wall, worked = (statistics.median(one[name] for one in blocked) for name in ("worst_ms", "cpu_worst_ms"))
    rows.at_most("/metrics, 10,000 series: reactor blocked p50", wall, "ms", 30,
                 f"{worked:.1f} ms of it its own work; in 0.3 s without a scrape {statistics.median(quiet):.1f} ms; a scrape "
                 f"takes {statistics.median(took):.2f} s")


if __name__ == "__main__":
    measure(Rows())
