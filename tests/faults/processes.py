"""The processes of a world: the nursery that forks them, each service, and what /proc shows of programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

ARMED = Path(__file__).with_name("armed.py")
ROOT = Path(__file__).resolve().parent.parent.parent


class Nursery:
    """A process that has imported the product and forks services of it. `tree` is the folder that holds iop/."""

    def __init__(self, tree: Path = ROOT) -> None:
        environment = dict(os.environ, PYTHONPATH=str(tree), PYTHONDONTWRITEBYTECODE="1")
        self._process = subprocess.Popen([sys.executable, str(ARMED), "nursery"], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, env=environment, text=True, bufsize=1)
        self.tree = tree
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError("the nursery does not start; it has told why")

    def start(self, words: list[str], folder: Path, log: Path, environment: dict[str, str]) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        asked = {"words": words, "folder": str(folder), "log": str(log), "environment": environment}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def stop(self) -> None:
        """Its children die with it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


class Service:
    """An edge or a node: started again whenever it is wanted and dead."""

    def __init__(self, name: str, nursery: Nursery, words: list[str], folder: Path, log: Path,
                 environment: dict[str, str]) -> None:
        self.name = name
        self.log = log
        self.wanted = False
        self.pid = 0
        self.starts = 0
        self._nursery = nursery
        self._words = words
        self._folder = folder
        self._environment = environment
        self._ticks = 0

    def start(self) -> None:
        self.wanted = True
        self.pid = self._nursery.start(self._words, self._folder, self.log, self._environment)
        self._ticks = ticks_of(self.pid)
        self.starts += 1

    @property
    def alive(self) -> bool:
        return bool(self.pid) and self._ticks != 0 and ticks_of(self.pid) == self._ticks

    @property
    def stopped(self) -> bool:
        return state_of(self.pid) == "T"

    def signal(self, number: int) -> bool:
        if not self.alive:
            return False
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)
            return True
        return False

    def kill(self) -> bool:
        return self.signal(signal.SIGKILL)


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def ticks_of(pid: int) -> int:
    """When it started; 0 when it is gone."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else 0


def state_of(pid: int) -> str:
    fields = _stat(pid)
    return fields[0] if fields else ""


def parent_of(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def words_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def processes_with(text: str) -> list[int]:
    """The living processes in whose command line or environment `text` stands."""
    found, wanted = [], text.encode()
    for place in Path("/proc").glob("[0-9]*"):
        pid = int(place.name)
        if pid == os.getpid():
            continue
        try:
            if wanted in (place / "cmdline").read_bytes() or wanted in (place / "environ").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return [pid for pid in found if state_of(pid) not in ("", "Z", "X")]


def supervisors(text: str) -> list[int]:
    """The processes that hold programs in whose command line `text` stands."""
    parents = {parent_of(pid) for pid in processes_with(text) if "child.py" in words_of(pid)}
    return sorted(pid for pid in parents if "from iop.node import" in words_of(pid))
