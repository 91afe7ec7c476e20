"""What history and spool cost the relay: the same load with them on and off, at the same time and on the same cores.

Off is a history that keeps nothing (edgeproc.py) and a spool that writes nothing (nodeproc.py); all else is the same. The
load is a real node whose adapter emits as fast as it is let, through a real edge, to streaming clients. What counts is the
processor time of both processes until all is acknowledged. In turns, the two see two machines: what else runs moves a single
round by as much as there is to find.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import relay
from edges import HERE, Edge, cpu_seconds, end, line_of, pinned
from rows import Rows

CASES = ((1, 1), (100, 1), (1, 32), (100, 32))


def path(streams: int, total: int, per_batch: int, keep: bool, begin: Callable[[], object]) -> float:
    """Events per second of one core, edge and node together. `begin` is called when all is ready for the load."""
    with tempfile.TemporaryDirectory(prefix="iop-cost-") as folder:
        edge = Edge(folder, *(() if keep else ("--keep-nothing",)))
        children: list[subprocess.Popen] = []
        try:
            node = pinned("1", sys.executable, f"{HERE}/nodeproc.py", *(() if keep else ("--keep-nothing",)), folder,
                          str(edge.link), edge.token, str(total // streams), str(per_batch), stderr=edge.log)
            children.append(node)
            edge.wait_model(patience_s=20)
            readers = pinned("1", sys.executable, f"{HERE}/readers.py", str(edge.http), edge.key, str(streams), "chat")
            children.append(readers)
            if line_of(readers) != "ready":
                raise SystemExit("not all streams were opened")
            asked = [line_of(node) for _ in range(streams)]
            if set(asked) != {"asked"}:
                raise SystemExit(f"the node said {set(asked)}")
            begin()
            before = cpu_seconds(edge.pid) + cpu_seconds(node.pid)
            for child in (readers, node):
                child.stdin.write("\n")
                child.stdin.flush()
            count, _ = line_of(readers).split()
            if int(count) < total or line_of(node) != "acknowledged":
                raise SystemExit(f"readers got {count} of {total} events")
            return int(count) / (cpu_seconds(edge.pid) + cpu_seconds(node.pid) - before)
        finally:
            end(*children)
            edge.stop()


def _pair(run) -> tuple[float, float]:
    """With and without, side by side."""
    ready = Barrier(2, timeout=120)
    with ThreadPoolExecutor(2) as threads:
        on, off = (threads.submit(run, keep, ready.wait) for keep in (True, False))
        return on.result(), off.result()


def _compare(rows: Rows, name: str, run, rounds: int) -> None:
    pairs = [_pair(run) for _ in range(rounds)]
    lost = statistics.median(100 * (1 - on / off) for on, off in pairs)
    on, off = (statistics.median(column) for column in zip(*pairs, strict=True))
    rows.at_most(name, lost, "%", 25, f"{on:,.0f} events/s a core with, {off:,.0f} without", on=on, off=off)


def measure(rows: Rows, rounds: int = 5) -> None:
    for streams, per_batch in CASES:
        total = relay.EVENTS[per_batch] // 2
        case = f"{streams} x {per_batch}"
        _compare(rows, f"history + spool cost the path, {case}",
                 lambda keep, begin, case=(streams, total, per_batch): path(*case, keep, begin), rounds)
        _compare(rows, f"history alone costs the edge, {case}",
                 lambda keep, begin, case=(streams, total, per_batch): relay.ours(
                     *case, *(() if keep else ("--keep-nothing",)), begin=begin)["per_core"], rounds)


if __name__ == "__main__":
    measure(Rows(), int(sys.argv[1]) if len(sys.argv) > 1 else 5)
