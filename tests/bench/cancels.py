"""Clients that leave, in each phase: how soon their backend sees it; and ten thousand of them, who leave all slots free.

    python tests/bench/cancels.py [CANCELS]

Real processes: `iop up` (edge, node), and a backend (witness.py) that tells when it saw the close. Who is still queued, or
waits for a server that loads, has no backend yet: there the end of the run counts, as the edge records it.
"""

from __future__ import annotations

import asyncio
import datetime
import http.client
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable

from edges import HERE
from latency import Up, wait_for
from rows import Rows

from iop import yamlfile

PHASES = ("queued", "loading", "prefill", "streaming", "in one piece")
GOAL_MS = 100
SLOTS, CLIENTS = 24, 40
STAY_S = 0.8                     # the longest that a client of the ten thousand stays; half leave within a quarter of that
FREE_S = 20.0                    # from the last cancel until all must be free


class Witness:
    """The backend, and what it has told so far: when it saw a request come, and its client go (ns)."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, f"{HERE}/witness.py"], stdout=subprocess.PIPE, text=True)
        self.came: dict[str, int] = {}
        self.gone: dict[str, int] = {}
        self.port = int(self.process.stdout.readline().split()[1])
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            what, tag, ns = line.split()
            (self.came if what == "came" else self.gone)[tag] = int(ns)

    @property
    def open(self) -> int:
        return len(self.came) - len(self.gone)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


class Ground:
    """`iop up` with one node that offers `one` (a slot), `many` (SLOTS of them), and `never`, whose server loads for ever."""

    def __init__(self, folder: str, witness: Witness) -> None:
        self.witness = witness
        Up(folder).stop()
        file = f"{folder}/iop/node-1/node.yaml"
        node = yamlfile.load(file).value
        url = {"url": f"http://127.0.0.1:{witness.port}/v1", "model": "m"}
        serve = {"argv": [sys.executable, f"{HERE}/witness.py", "--sleep", "{port}"], "ready_s": 3600}
        node["adapters"] = {"openai": {"concurrency": 200, "targets": {
            "one": url | {"concurrency": 1}, "many": url | {"concurrency": SLOTS},
            "never": {"model": "m", "serve": serve, "concurrency": SLOTS}}}}
        with open(file, "w") as out:
            out.write(yamlfile.dump(node))
        self.up = Up(folder)

    def ask(self, tag: str, model: str, prompt: str = "go", stream: bool = True) -> http.client.HTTPConnection:
        """A client that has asked and reads nothing yet."""
        connection = http.client.HTTPConnection("127.0.0.1", self.up.port, timeout=30)
        connection.request("POST", "/v1/chat/completions", body(tag, model, prompt, stream), self.up.headers)
        return connection

    def came(self, tag: str) -> None:
        sure(lambda: tag in self.witness.came, f"the backend is asked for {tag}")

    def gone_ms(self, tag: str, connection: http.client.HTTPConnection) -> float:
        """Hang up; milliseconds until the backend saw it."""
        left_ns = time.monotonic_ns()
        connection.sock.close()
        connection.close()
        sure(lambda: tag in self.witness.gone, f"the backend sees that {tag} is gone")
        return (self.witness.gone[tag] - left_ns) / 1e6

    def ended_ms(self, run_id: str, connection: http.client.HTTPConnection) -> float:
        """Hang up; milliseconds until the run had ended, by the clock that both have."""
        left_s = time.time()
        connection.close()
        sure(lambda: self.run(run_id)["ended_at"], "the run has ended")
        return 1000 * (datetime.datetime.fromisoformat(self.run(run_id)["ended_at"]).timestamp() - left_s)

    def run(self, run_id: str) -> dict:
        return self.up.call("GET", f"/api/v1/runs/{run_id}")

    def newest(self, state: str) -> str:
        runs = self.up.call("GET", f"/api/v1/runs?state={state}&limit=1")["runs"]
        return runs[0]["run_id"] if runs else ""

    def running(self) -> int:
        return sum(node["running"] for node in self.up.call("GET", "/api/v1/nodes")["nodes"])


def body(tag: str, model: str, prompt: str, stream: bool) -> str:
    return json.dumps({"model": model, "stream": stream, "user": tag, "messages": [{"role": "user", "content": prompt}]})


def sure(condition: Callable[[], object], what: str, deadline_s: float = 20.0) -> None:
    wait_for(condition, deadline_s)
    if not condition():
        raise SystemExit(f"not within {deadline_s:.0f} s: {what}")


def cancel_ms(ground: Ground, phase: str, tag: str) -> float:
    """Be a client that leaves in that phase."""
    if phase == "queued":
        with_slot = ground.ask(f"{tag}-before", "one")
        ground.came(f"{tag}-before")
        asked = ground.ask(tag, "one")
        sure(lambda: ground.newest("queued"), "a run is queued")
        taken = ground.ended_ms(ground.newest("queued"), asked)
        ground.gone_ms(f"{tag}-before", with_slot)
        return taken
    if phase == "loading":
        asked = ground.ask(tag, "never")
        sure(lambda: ground.newest("running"), "a run waits for its server")
        return ground.ended_ms(ground.newest("running"), asked)
    asked = ground.ask(tag, "many", "prefill" if phase == "prefill" else "go", phase != "in one piece")
    ground.came(tag)
    if phase == "streaming":
        asked.getresponse().readline()
    else:
        time.sleep(0.05)
    return ground.gone_ms(tag, asked)


class Storm:
    """Clients that come and leave, whatever their request is at."""

    def __init__(self, ground: Ground, cancels: int, seed: int = 1) -> None:
        self._ground, self._left, self._chance = ground, cancels, random.Random(seed)
        self.left_ns: dict[str, int] = {}
        self.answered: set[str] = set()
        self.wanted: Counter[str] = Counter()

    async def run(self) -> None:
        await asyncio.gather(*(self._client() for _ in range(CLIENTS)))

    async def _client(self) -> None:
        while self._left > 0:
            self._left -= 1
            await self._leave_early(f"storm-{self._left}")

    async def _leave_early(self, tag: str) -> None:
        chance = self._chance
        model = chance.choices(("many", "one", "never"), (8, 1, 1))[0]
        data = body(tag, model, chance.choice(("prefill", "go", "go")), chance.random() < 0.7).encode()
        head = "".join(f"{name}: {value}\r\n" for name, value in self._ground.up.headers.items())
        reader, writer = await asyncio.open_connection("127.0.0.1", self._ground.up.port)
        writer.write(f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}Content-Length: {len(data)}\r\n\r\n"
                     .encode() + data)
        try:
            async with asyncio.timeout(STAY_S * chance.random() ** 2):
                while piece := await reader.read(65536):
                    self.answered.add(tag)
                    self.wanted["refused"] += piece.startswith(b"HTTP/1.1 4") or piece.startswith(b"HTTP/1.1 5")
        except TimeoutError:
            pass
        self.wanted[model] += 1
        self.left_ns[tag] = time.monotonic_ns()
        writer.transport.abort() if chance.random() < 0.5 else writer.close()

    def phases(self, came: dict[str, int]) -> dict[str, int]:
        """How many left when: before a backend was asked, before it answered, and in the middle of its answer."""
        asked = {tag for tag in self.left_ns if tag in came}
        return {"before a backend was asked": len(self.left_ns) - len(asked),
                "before it answered": len(asked - self.answered), "in the answer": len(asked & self.answered)}


def storm(rows: Rows, ground: Ground, cancels: int) -> None:
    witness, up = ground.witness, ground.up
    raging = Storm(ground, cancels)
    begun = time.perf_counter()
    asyncio.run(raging.run())
    took_s = time.perf_counter() - begun
    free_s = wait_for(lambda: not ground.running() and not witness.open, FREE_S)
    phases = raging.phases(witness.came)
    seen = [(witness.gone[tag] - left) / 1e6 for tag, left in raging.left_ns.items() if tag in witness.gone]
    told = ", ".join(f"{count} {phase}" for phase, count in phases.items())
    rows.at_most(f"slots taken after {cancels:,} cancels", ground.running(), "", 0,
                 f"left {told}; in {took_s:.0f} s, all free {free_s:.2f} s after the last", phases=phases)
    rows.at_most("backend connections open after them", witness.open, "", 0)
    rows.at_most("runs open after them", runs_open(up), "", 0, f"{raging.wanted['refused']} were refused")
    rows.add("cancel among them: backend's close, p50", statistics.median(seen), "ms",
             note=f"p99 {statistics.quantiles(seen, n=100)[98]:.0f} ms, worst {max(seen):.0f} ms, of {len(seen)}")
    rows.at_least("slots that work after them", working(ground), "", SLOTS)


def runs_open(up: Up) -> int:
    request = http.client.HTTPConnection("127.0.0.1", up.port, timeout=30)
    request.request("GET", "/metrics", headers=up.headers)
    lines = request.getresponse().read().decode().splitlines()
    return int(float(next(line.split()[1] for line in lines if line.startswith("iop_runs_open "))))


def working(ground: Ground) -> int:
    """How many of the slots take a request at once."""
    asked = {f"after-{number}": ground.ask(f"after-{number}", "many") for number in range(SLOTS)}
    wait_for(lambda: set(asked) <= set(ground.witness.came), 10)
    for connection in asked.values():
        connection.close()
    return len(set(asked) & set(ground.witness.came))


def measure(rows: Rows, tries: int = 20, cancels: int = 10_000) -> None:
    with tempfile.TemporaryDirectory(prefix="iop-cancels-") as folder:
        witness = Witness()
        ground = None
        try:
            ground = Ground(folder, witness)
            for phase in PHASES:
                times = [cancel_ms(ground, phase, f"{phase.replace(' ', '-')}-{number}") for number in range(tries)]
                end = "end of the run" if phase in PHASES[:2] else "backend's close"
                rows.at_most(f"cancel, {phase}: {end}, p50", statistics.median(times), "ms", GOAL_MS,
                             f"worst of {tries}: {max(times):.1f} ms", tries=times)
            storm(rows, ground, cancels)
        finally:
            if ground:
                ground.up.stop()
            witness.stop()


if __name__ == "__main__":
    measure(Rows(), cancels=int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
