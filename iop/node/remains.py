"""What becomes of a program whose supervisor was killed."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from typing import Any

from twisted.internet import threads
from twisted.internet.defer import Deferred

from iop.node import processes

LIMIT_S = 12.0
PAUSE_S = 0.03


def same(known: Mapping[str, Any], pid: str, ticks: str) -> bool:
    """Whether the process that a journal names lives: same boot, same start."""
    return bool(known.get(pid)) and known["boot"] == processes.boot_id() and (
        processes.start_ticks(known[pid]) == known[ticks])


def end_remains(reactor: Any, run_id: str, known: Mapping[str, Any]) -> Deferred[tuple[int, int]]:
    """KILL what is left of a run without a supervisor: (how many lived, how many could not be ended)."""
    return threads.deferToThreadPool(reactor, reactor.getThreadPool(), _end_remains, run_id, dict(known))


def _end_remains(run_id: str, known: dict[str, Any]) -> tuple[int, int]:
    """Blocking, in a thread."""
    marker = f"IOP_RUN_ID={run_id}".encode()
    alive = {known["child"]: known["child_ticks"]} if same(known, "child", "child_ticks") else {}
    found: set[tuple[int, int]] = set()
    deadline = time.monotonic() + LIMIT_S
    quiet = 0
    while True:
        now = processes.members(marker, alive, tuple(alive), number=signal.SIGKILL)
        found |= {(process.pid, process.start_ticks) for process in now}
        alive |= {process.pid: process.start_ticks for process in now}
        quiet = 0 if now else quiet + 1
        if quiet == 2 or time.monotonic() > deadline:   # one in the middle of an exec shows no marker for an instant
            break
        time.sleep(PAUSE_S)
    found.discard((known.get("pid", 0), known.get("ticks", 0)))
    return len(found), len(now)
