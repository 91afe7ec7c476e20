"""Real processes on loopback: `iop up` in a folder of its own, and what a person does with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from iop.cli.client import Client

IOP = str(Path(sys.executable).parent / "iop")
PATIENCE_S = 60.0      # how long a condition may take on a busy machine; none takes more than a few seconds by itself


def eventually(condition: Callable[[], object], what: str, seconds: float = PATIENCE_S) -> object:
    """Wait until the condition holds, and return what it returned."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def processes_with(text: str) -> list[int]:
    """The processes in whose command line `text` stands."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in place.read_bytes():
                found.append(int(place.parent.name))
        except OSError:
            continue
    return [pid for pid in found if is_running(pid) and pid != os.getpid()]


class Up:
    """One `iop up`."""

    def __init__(self, state: Path, *options: str) -> None:
        self.state = state
        self.log = state.parent / f"{state.name}.up.log"
        self.ready_file = state / "ready.json"
        self.process = subprocess.Popen([IOP, "up", "--state", str(state), *options], stdin=subprocess.DEVNULL,
                                        stdout=self.log.open("a"), stderr=subprocess.STDOUT)

    def wait_ready(self) -> Up:
        try:
            eventually(lambda: self.is_ready() or self.process.poll() is not None, "`iop up` is ready")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.words()}") from None
        assert self.process.poll() is None, self.words()
        return self

    def is_ready(self) -> bool:
        """Whether there is a ready file, and not that of an `iop up` that was killed."""
        return self.ready_file.exists() and is_running(self.ready["edge_pid"])

    def words(self) -> str:
        logs = [self.log, *sorted(self.state.glob("*/log"))]
        return "\n".join(f"--- {log}\n{log.read_text(errors='replace')[-4000:]}" for log in logs if log.exists())

    @property
    def ready(self) -> dict:
        return json.loads(self.ready_file.read_text())

    @property
    def client(self) -> Client:
        ready = self.ready
        return Client(ready["http"], ready["api_key"])

    def iop(self, *words: str, **how) -> subprocess.CompletedProcess:
        return subprocess.run([IOP, "--state", str(self.state), *words], capture_output=True, timeout=PATIENCE_S,
                              **({"text": True} | how))

    def start(self, *words: str) -> subprocess.Popen:
        """An `iop` command that goes on in the background, and hears Ctrl-C also where these tests themselves do not."""
        return subprocess.Popen([IOP, "--state", str(self.state), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))

    def run_id(self, *words: str) -> str:
        return self.iop("run", "--detach", *words).stdout.strip()

    def run(self, run_id: str) -> dict:
        return json.loads(self.iop("show", run_id, "--json").stdout)

    def ended(self, run_id: str) -> dict:
        """The run, once it has ended."""
        eventually(lambda: self.run(run_id)["ended_at"], f"run {run_id} has ended")
        return self.run(run_id)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


# Prints lines with the time between them that is its prompt: "LINES SECONDS MARK".
COUNT = f"""{sys.executable} -c 'import sys, time
lines, seconds, mark = sys.argv[1].split()
for number in range(int(lines)):
    print(mark, number, flush=True)
    time.sleep(float(seconds))' {{prompt}}"""
