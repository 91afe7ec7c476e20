"""Two times of IOP over real parts: how soon a cancelled client's backend is free, and what a one-second job takes.

The witness of the cancel is the llama.cpp server's own /slots: a slot is busy until the backend has really stopped. It
gets one thread, since it stands for a GPU: with two it takes both cores of a small machine, and what is measured is the
wait for a core. How soon a backend is told, in every phase, stands in cancels.py.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from rows import Rows

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.dirname(sys.executable)


class Up:
    """`iop up` in a folder of its own."""

    def __init__(self, folder: str, *options: str) -> None:
        ready = os.path.join(folder, "ready.json")
        self.process = subprocess.Popen(
            [f"{BIN}/iop", "up", "--state", os.path.join(folder, "iop"), "--http-port", "0", "--link-port", "0",
             "--console-port", "0", "--ready-file", ready, *options], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not os.path.exists(ready):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("iop up did not become ready")
            time.sleep(0.05)
        with open(ready) as stream:
            self.where = json.load(stream)
        self.port = int(self.where["http"].rsplit(":", 1)[1])
        self.headers = {"Authorization": f"Bearer {self.where['api_key']}", "Content-Type": "application/json"}

    def call(self, method: str, path: str, body: object = None) -> dict:
        request = urllib.request.Request(f"{self.where['http']}{path}", method=method, headers=self.headers,
                                         data=None if body is None else json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30) as reply:
            return json.loads(reply.read())

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def busy_slots(port: int) -> list[dict]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/slots", timeout=5) as reply:
        return [slot for slot in json.loads(reply.read()) if slot["is_processing"]]


def is_writing(port: int) -> bool:
    """Whether a slot has written some tokens, and not only taken a prompt."""
    return any(token["n_decoded"] > 20 for slot in busy_slots(port) for token in slot["next_token"])


def wait_for(condition, deadline_s: float, pause_s: float = 0.002) -> float:
    """Seconds until `condition()`; the deadline's when it never came."""
    begun = time.perf_counter()
    while not condition() and time.perf_counter() - begun < deadline_s:
        time.sleep(pause_s)
    return time.perf_counter() - begun


def cancel_ms(port: int, headers: dict[str, str], backend_port: int, phase: str) -> float:
    """Ask the endless model, wait until it is at that, hang up; milliseconds until the slot is free."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    prompt = f"{time.monotonic_ns()} " * 300 if phase == "prefill" else "go"        # a new one: none of it is known yet
    body = json.dumps({"model": "loop", "stream": phase != "in one piece", "max_tokens": 100_000,
                       "messages": [{"role": "user", "content": prompt}]})
    connection.request("POST", "/v1/chat/completions", body, headers)
    reply = connection.getresponse() if phase == "streaming" else None
    while reply and b'"content":"' not in reply.readline():
        pass
    wait_for(lambda: busy_slots(backend_port) if phase == "prefill" else is_writing(backend_port), 10)
    if not busy_slots(backend_port) or phase == "prefill" and is_writing(backend_port):
        raise SystemExit("the backend is not at work; the measurement would show nothing")
    begun = time.perf_counter()
    connection.sock.close()
    if reply:
        reply.close()
    wait_for(lambda: not busy_slots(backend_port), 10)
    return 1000 * (time.perf_counter() - begun)


def job_s(up: Up) -> float:
    """Seconds from submitting a program that takes 1.0 s until the API says that it has ended."""
    begun = time.perf_counter()
    run = up.call("POST", "/api/v1/runs", {"adapter": "cli", "target": "second", "input": {"prompt": "x"}})
    request = urllib.request.Request(f"{up.where['http']}/api/v1/runs/{run['run_id']}/events",
                                     headers=up.headers | {"Accept": "text/event-stream"})
    with urllib.request.urlopen(request, timeout=30) as stream:
        told = stream.read()
    if b'"type":"completed"' not in told:
        raise SystemExit(f"the job did not complete: {told[-300:]!r}")
    return time.perf_counter() - begun


def measure(rows: Rows, tries: int = 12) -> None:
    with tempfile.TemporaryDirectory(prefix="iop-latency-") as folder:
        subprocess.run([sys.executable, f"{ROOT}/tools/tiny_gguf.py", folder], check=True, stdout=subprocess.DEVNULL)
        backend = subprocess.Popen(
            [sys.executable, f"{ROOT}/tools/llama_server.py", "--model", f"{folder}/loop.gguf", "--alias", "loop",
             "--ctx", "131072", "--threads", "1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        up = None
        try:
            backend_port = int(json.loads(backend.stdout.readline())["listening"].rsplit(":", 1)[1])
            up = Up(folder, "--openai", f"loop=http://127.0.0.1:{backend_port}/v1", "--cli", "second=sleep 1.0")
            cancels = {how: [cancel_ms(up.port, up.headers, backend_port, how) for _ in range(tries)]
                       for how in ("streaming", "in one piece")}
            prefills = [[cancel_ms(port, headers, backend_port, "prefill") for _ in range(tries)] for port, headers in (
                (up.port, up.headers), (backend_port, {"Content-Type": "application/json"}))]
            jobs = [job_s(up) for _ in range(5)]
        finally:
            if up:
                up.stop()
            backend.terminate()
            backend.wait()
    for how, times in cancels.items():
        rows.at_most(f"llama.cpp, {how}: slot free, p50", statistics.median(times), "ms", 100,
                     f"worst of {tries}: {max(times):.0f} ms", tries=times)
    ours, alone = map(statistics.median, prefills)
    rows.add("llama.cpp, prefill: slot free, p50", ours, "ms", note=f"asked without IOP: {alone:.0f} ms; it looks for its "
             "client between two pieces of a prompt", tries=prefills)
    rows.at_most("a 1.0 s program, submit to told end, p50", statistics.median(jobs), "s", 1.25,
                 f"worst of {len(jobs)}: {max(jobs):.3f} s", tries=jobs)


if __name__ == "__main__":
    measure(Rows())
