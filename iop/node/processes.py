"""The processes of this machine as /proc shows them: who belongs to a run, and signals that hit nobody else.

Blocking (a few milliseconds for hundreds of processes), so called from a thread. A process is known by pid and start
time, since pids are used again.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Container, Mapping
from typing import NamedTuple

GONE_STATES = frozenset("ZXx")
PASSES = 100   # through what is new, at most; and
QUIET = 3      # in a row that found no member end the hunt: on a busy machine there is always something new


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


def has_marker(pid: int, marker: bytes) -> bool:
    """Whether ``NAME=value`` stands in the environment that it was started with. No for what we may not read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as stream:
            return marker in stream.read().split(b"\0")
    except OSError:
        return False


def members(marker: bytes, known: Mapping[int, int], sessions: Container[int] = (), since_ticks: int = 0, *,
            number: int = 0, spared_group: int = 0) -> list[Process]:
    """Every living process that belongs to a run or node, in no order; each gets signal `number` as soon as it is found.

    It belongs when it is one of `known` ({pid: start ticks}), carries `marker`, is in one of the `sessions`, or descends
    from a member. Nothing that started before `since_ticks` is looked at, nor this process and its ancestors; those of
    `spared_group` get no signal. Raises OSError without /proc.
    """
    hunt = _Hunt(marker, known, sessions, since_ticks, number, spared_group)
    quiet = 0
    for _ in range(PASSES):
        before = len(hunt.found())
        if not hunt.look_at_new():
            break
        found = len(hunt.found())
        quiet = quiet + 1 if found == before else 0
        if quiet == QUIET or (found and not number):
            break                        # who only looks has its answer; who signals looks for what was started meanwhile
    return hunt.found()


class _Hunt:
    """Looks at each process once, and again at the list for what was started meanwhile.

    A process that forks and exits without pause is missed by one walk through /proc, which takes longer than a generation
    lives; a pass over only what is new takes a fraction of that.
    """

    def __init__(self, marker: bytes, known: Mapping[int, int], sessions: Container[int], since_ticks: int, number: int,
                 spared_group: int) -> None:
        self._marker, self._known, self._sessions, self._since_ticks = marker, known, sessions, since_ticks
        self._number, self._spared_group = number, spared_group
        self._seen: dict[int, Process | None] = {}
        self._found: dict[int, Process] = {}
        self._spared = _ancestors(os.getpid())

    def look_at_new(self) -> bool:
        """One pass; whether there was anything new."""
        new = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if pid not in self._seen]
        for pid in reversed(new):  # the latest first: they may be the shortest-lived
            process = self._seen[pid] = look(pid)
            if process is not None and self._belongs(process):
                self._take(process)
        self._take_descendants()
        return bool(new)

    def found(self) -> list[Process]:
        return list(self._found.values())

    def _belongs(self, process: Process) -> bool:
        if process.start_ticks < self._since_ticks or process.pid in self._spared:
            return False
        return (self._known.get(process.pid) == process.start_ticks or process.session in self._sessions
                or process.parent in self._found or has_marker(process.pid, self._marker))

    def _take(self, process: Process) -> None:
        self._found[process.pid] = process
        if self._number and process.group != self._spared_group:
            send_signal(process, self._number)

    def _take_descendants(self) -> None:
        children: dict[int, list[Process]] = {}
        for process in self._seen.values():
            if process is not None:
                children.setdefault(process.parent, []).append(process)
        frontier = list(self._found)
        while frontier:
            for child in children.get(frontier.pop(), ()):
                if child.pid not in self._found and child.pid not in self._spared and child.start_ticks >= self._since_ticks:
                    self._take(child)
                    frontier.append(child.pid)


def _ancestors(pid: int) -> set[int]:
    """A process and all that it descends from."""
    line: set[int] = set()
    while pid and pid not in line:
        line.add(pid)
        process = look(pid)
        pid = process.parent if process is not None else 0
    return line


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
