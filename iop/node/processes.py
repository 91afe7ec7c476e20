"""The processes of this machine as /proc shows them: who belongs to a run, and signals that hit nobody else.

Blocking (a few milliseconds for hundreds of processes), so called from a thread. A process is known by pid and start
time, since pids are used again.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

GONE_STATES = frozenset("ZXx")


class Process(NamedTuple):
    """One living process. `start_ticks`: clock ticks from boot to its start."""

    pid: int
    parent: int
    group: int
    session: int
    start_ticks: int


def boot_id() -> str:
    """This boot of the machine; start ticks of another boot mean nothing."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
        return stream.read().strip()


def look(pid: int) -> Process | None:
    """The process with this pid; None when there is none, or only its remains (a zombie)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            text = stream.read()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2:].split()  # the name before may hold anything
    if fields[0].decode("ascii") in GONE_STATES:
        return None
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def start_ticks(pid: int) -> int:
    """When it started; 0 when it is gone."""
    process = look(pid)
    return process.start_ticks if process is not None else 0


def everything() -> dict[int, Process]:
    """All living processes, by pid. Raises OSError without /proc."""
    found = (look(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def has_marker(pid: int, marker: bytes) -> bool:
    """Whether ``NAME=value`` stands in the environment that it was started with. No for what we may not read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as stream:
            return marker in stream.read().split(b"\0")
    except OSError:
        return False


def members(marker: bytes, known: Mapping[int, int], sessions: Container[int] = (),
            since_ticks: int = 0) -> list[Process]:
    """Every living process that belongs to a run or node, in no order.

    It does when it is one of `known` ({pid: start ticks}), carries `marker`, is in one of the `sessions`, or descends
    from a member. Nothing that started before `since_ticks` is looked at. Never this process or its ancestors.
    """
    living = everything()
    spared = _ancestors(living, os.getpid())
    candidates = {pid: process for pid, process in living.items()
                  if process.start_ticks >= since_ticks and pid not in spared}
    found = {pid for pid, process in candidates.items()
             if known.get(pid) == process.start_ticks or process.session in sessions or has_marker(pid, marker)}
    _add_descendants(found, candidates.values())
    return [candidates[pid] for pid in found]


def _ancestors(living: Mapping[int, Process], pid: int) -> set[int]:
    line = set()
    while pid in living and pid not in line:
        line.add(pid)
        pid = living[pid].parent
    return line


def _add_descendants(found: set[int], candidates: Iterable[Process]) -> None:
    children: dict[int, list[int]] = {}
    for process in candidates:
        children.setdefault(process.parent, []).append(process.pid)
    frontier = list(found)
    while frontier:
        new = [child for child in children.get(frontier.pop(), ()) if child not in found]
        found.update(new)
        frontier.extend(new)


def send_signal(process: Process, number: int) -> bool:
    """Signal exactly this process, by a descriptor of it; False when it is gone or not ours."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if start_ticks(process.pid) != process.start_ticks:
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
