"""A real edge in a folder and a process of its own, as the benchmarks start it; and what processes cost."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
import urllib.request

import msgspec

from iop import keys

KEYS_IN_YAML = 1_000     # a keys.yaml may have 256 KiB, which is some 1,400 keys
HERE = os.path.dirname(os.path.abspath(__file__))


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far, from its own clock (Linux, CPUCLOCK_SCHED): /proc counts in ticks of 10 ms."""
    return time.clock_gettime_ns((~pid << 3) | 2) / 1e9


def rss_mb(pid: int) -> float:
    with open(f"/proc/{pid}/statm") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def pinned(core: str, *argv: str, **how) -> subprocess.Popen:
    how.setdefault("stdin", subprocess.PIPE)
    how.setdefault("stdout", subprocess.PIPE)
    return subprocess.Popen(["taskset", "-c", core, *argv], text=True, **how)


def line_of(process: subprocess.Popen, patience_s: float = 120.0) -> str:
    """The next line that a child prints; its pipe is read here only."""
    rest = getattr(process, "rest", b"")
    while b"\n" not in rest:
        if not select.select([process.stdout], [], [], patience_s)[0]:
            raise SystemExit(f"{process.args[3:5]} said nothing for {patience_s:g} s")
        data = os.read(process.stdout.fileno(), 65536)
        if not data:
            raise SystemExit(f"{process.args[3:5]} has ended")
        rest += data
    line, process.rest = rest.split(b"\n", 1)
    return line.decode().strip()


def end(*processes: subprocess.Popen) -> None:
    for process in processes:
        process.kill()
        process.wait()


class Edge:
    """`twistd iop-edge` behind edgeproc.py, with one API key and a token for each of `nodes`.

    `options` are edgeproc's; `more` is appended to edge.yaml.
    """

    def __init__(self, folder: str, *options: str, nodes: tuple[str, ...] = ("bench",), more: str = "", link: str = "",
                 core: str = "0", wait: bool = True) -> None:
        self.folder = folder
        self.state = os.path.join(folder, "state")
        operator, self.key = keys.make_key("api", "bench", list(keys.SCOPES))
        made = [keys.make_key("node", node) for node in nodes]
        self.tokens = [text for _, text in made]
        self.token = self.tokens[0]
        if len(nodes) < KEYS_IN_YAML:
            keys.save_keys(os.path.join(folder, "keys.yaml"), [operator, *(key for key, _ in made)])
        else:
            with open(os.path.join(folder, "keys.json"), "wb") as file:
                file.write(msgspec.json.encode([operator, *(key for key, _ in made)]))
            options = (*options, "--keys", os.path.join(folder, "keys.json"))
        with open(os.path.join(folder, "edge.yaml"), "w") as config:
            config.write("edge: {id: bench}\nlisten:\n  link: {port: 0" + link + "}\n  http: {port: 0}\n"
                         "queue: {limit: 5000}\n" + more)
        self.log = open(os.path.join(folder, "log"), "w")
        self.started = time.monotonic()
        self.process = pinned(core, sys.executable, f"{HERE}/edgeproc.py", *options, "--", "-c",
                              os.path.join(folder, "edge.yaml"), stderr=self.log)
        if wait:
            self.wait_ready()

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_ready(self, patience_s: float = 60.0) -> float:
        """Seconds from its start until it can be reached."""
        ready = os.path.join(self.state, "edge.ready.json")
        while not os.path.exists(ready):
            if self.process.poll() is not None or time.monotonic() > self.started + patience_s:
                raise SystemExit(f"the edge did not start; see {self.folder}/log")
            time.sleep(0.005)
        took = time.monotonic() - self.started
        with open(ready) as stream:
            where = json.load(stream)
        self.http, self.link = (int(where[name].rsplit(":", 1)[1]) for name in ("http", "link"))
        return took

    def get(self, path: str) -> bytes:
        request = urllib.request.Request(f"http://127.0.0.1:{self.http}{path}",
                                         headers={"Authorization": f"Bearer {self.key}"})
        return urllib.request.urlopen(request, timeout=30).read()

    def wait_model(self, name: str = "flood", patience_s: float = 10.0) -> None:
        deadline = time.monotonic() + patience_s
        while f'"{name}"'.encode() not in self.get("/v1/models"):
            if time.monotonic() > deadline:
                raise SystemExit("the bench node did not become ready")
            time.sleep(0.05)

    def ask(self) -> dict[str, float]:
        """What edgeproc's probe has seen since it was asked last."""
        self.process.send_signal(signal.SIGUSR1)
        return json.loads(line_of(self.process))

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(25)
        except subprocess.TimeoutExpired:
            end(self.process)
        self.log.close()
