"""What becomes of a program whose supervisor was killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from typing import Any

from twisted.internet import threads
from twisted.internet.defer import Deferred

from iop.node import guardian, journal, processes

LIMIT_S = 12.0
PAUSE_S = 0.03


def same(known: Mapping[str, Any], pid: str, ticks: str) -> bool:
    """Whether the process that a journal names lives: same boot, same start."""
    return bool(known.get(pid)) and known["boot"] == processes.boot_id() and (
        processes.start_ticks(known[pid]) == known[ticks])


def end_remains(reactor: Any, run_id: str, known: Mapping[str, Any], folder: str) -> Deferred[tuple[int, int]]:
    """KILL what is left of a run without a supervisor: (how many lived, how many could not be ended; -1: cannot be known)."""
    return threads.deferToThreadPool(reactor, reactor.getThreadPool(), _end_remains, run_id, dict(known), folder)


def _end_remains(run_id: str, known: dict[str, Any], folder: str) -> tuple[int, int]:
    """Blocking, in a thread."""
    deadline = time.monotonic() + LIMIT_S
    held = _held(known, folder, deadline)
    marker = f"IOP_RUN_ID={run_id}".encode()
    alive = {known["child"]: known["child_ticks"]} if same(known, "child", "child_ticks") else {}
    found: set[tuple[int, int]] = set()
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
    if held is None:
        return len(found), len(now) or -1
    return len(found) + held[0], len(now) + held[1]


def _held(known: dict[str, Any], folder: str, deadline: float) -> tuple[int, int] | None:
    """What the guardian found and left of what its supervisor held; None where nobody held it to the end."""
    told = guardian.read(folder)
    if same(known, "pid", "ticks"):
        if not same(told, "guardian", "guardian_ticks"):
            return _by_the_supervisor(known, folder, deadline)
        os.kill(known["pid"], signal.SIGKILL)            # nobody reads its journal any more; the guardian does the rest
    while "found" not in told and same(told, "guardian", "guardian_ticks") and time.monotonic() < deadline:
        time.sleep(PAUSE_S)
        told = guardian.read(folder)
    told = guardian.read(folder)                         # its last word came before its end
    return (told["found"], told["left"]) if "found" in told else None


def _by_the_supervisor(known: dict[str, Any], folder: str, deadline: float) -> tuple[int, int] | None:
    """Its guardian was killed; TERM has it end all of its run, and then itself. Its last record tells: it may be dying."""
    os.kill(known["pid"], signal.SIGTERM)
    while same(known, "pid", "ticks"):
        if time.monotonic() > deadline:
            return None
        time.sleep(PAUSE_S)
    told = journal.ending(folder)
    return (1, told["processes_left"]) if told else None
