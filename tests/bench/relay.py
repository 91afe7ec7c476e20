"""The edge's relay (node -> edge -> N streaming clients, history on) against the bare relay of floor/, in one run.

Prints events per second of one core (events / CPU seconds of the edge) of both, and their ratio.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from iop import keys

HERE = os.path.dirname(os.path.abspath(__file__))
FLOOR_PYTHON = os.environ.get("BENCH_PYTHON", sys.executable)   # has orjson
CASES = ((1, 1), (100, 1), (1000, 1), (1, 32), (100, 32), (1000, 32))


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pinned(core: str, *argv: str, **how) -> subprocess.Popen:
    how.setdefault("stdin", subprocess.PIPE)
    how.setdefault("stdout", subprocess.PIPE)
    return subprocess.Popen(["taskset", "-c", core, *argv], text=True, **how)


class Edge:
    """A real `twistd iop-edge` in a folder of its own, with one API key and one node's token."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        operator, self.key = keys.make_key("api", "bench", list(keys.SCOPES))
        node, self.token = keys.make_key("node", "bench")
        keys.save_keys(os.path.join(folder, "keys.yaml"), [operator, node])
        with open(os.path.join(folder, "edge.yaml"), "w") as config:
            config.write("edge: {id: bench}\nlisten:\n  link: {port: 0}\n  http: {port: 0}\nqueue: {limit: 5000}\n")
        self.log = open(os.path.join(folder, "log"), "w")
        self.process = pinned("0", sys.executable, "-m", "twisted", "--log-level=warn", "iop-edge",
                              "-c", os.path.join(folder, "edge.yaml"), stdout=self.log, stderr=self.log)
        ready = os.path.join(folder, "state", "edge.ready.json")
        deadline = time.monotonic() + 30
        while not os.path.exists(ready):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the edge did not start; see {folder}/log")
            time.sleep(0.05)
        with open(ready) as stream:
            where = json.load(stream)
        self.http, self.link = (int(where[name].rsplit(":", 1)[1]) for name in ("http", "link"))

    def wait_node(self) -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{self.http}/v1/models",
                                         headers={"Authorization": f"Bearer {self.key}"})
        for _ in range(200):
            if b'"flood"' in urllib.request.urlopen(request, timeout=5).read():
                return
            time.sleep(0.05)
        raise SystemExit("the bench node did not become ready")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(25)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def ours(streams: int, total: int, per_batch: int) -> float:
    """Events per second of one core of a real edge."""
    with tempfile.TemporaryDirectory(prefix="iop-relay-") as folder:
        edge = Edge(folder)
        children = []
        try:
            node = pinned("1", sys.executable, f"{HERE}/node.py", str(edge.link), edge.token, str(streams), str(total),
                          str(per_batch))
            children.append(node)
            node.stdout.readline()
            edge.wait_node()
            readers = pinned("1", sys.executable, f"{HERE}/readers.py", str(edge.http), edge.key, str(streams), "chat")
            children.append(readers)
            if readers.stdout.readline().strip() != "ready" or node.stdout.readline().strip() != "asked":
                raise SystemExit(f"not all {streams} streams were opened")
            before = cpu_seconds(edge.process.pid)
            for child in (readers, node):
                child.stdin.write("\n")
                child.stdin.flush()
            count, _wall = readers.stdout.readline().split()
            spent = cpu_seconds(edge.process.pid) - before
            if int(count) < total:
                raise SystemExit(f"readers got {count} of {total} events")
            return int(count) / spent
        finally:
            for child in children:
                child.kill()
                child.wait()
            edge.stop()


def floor(streams: int, total: int, per_batch: int) -> float:
    """Events per second of one core of the bare relay."""
    code = (f"import sys; sys.path.insert(0, {HERE + '/floor'!r}); import relay; "
            f"print(relay.run('read', 'direct', 'hand', 'epoll', {streams}, 0, {total}, {per_batch}, "
            f"{'batchf' if per_batch > 1 else 'ev'!r}, 'count')['cpu_us'])")
    printed = subprocess.run([FLOOR_PYTHON, "-c", code], capture_output=True, text=True, check=True).stdout
    return 1e6 / float(printed.split()[-1])


def measure(rounds: int = 3) -> list[dict[str, float]]:
    rows = []
    for streams, per_batch in CASES:
        total = 60_000 if per_batch == 1 else 320_000
        pairs = [(floor(streams, total, per_batch), ours(streams, total, per_batch)) for _ in range(rounds)]
        bare, iop = (statistics.median(column) for column in zip(*pairs, strict=True))
        rows.append({"streams": streams, "per_batch": per_batch, "floor": bare, "iop": iop, "ratio": iop / bare})
        print(f"relay, {streams:>5} streams, batches of {per_batch:>2}: floor {bare:>9,.0f} events/s a core, "
              f"iop {iop:>9,.0f}: {iop / bare:4.0%} (goal >= 40%)", flush=True)
    print(f"relay, 1,000 streams against 1: {rows[2]['iop'] / rows[0]['iop']:.2f} (goal >= 0.25)")
    return rows


if __name__ == "__main__":
    measure(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
