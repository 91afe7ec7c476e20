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
    fields = _stat(pid)
    if not fields or fields[0].decode("ascii") in GONE_STATES:
        return None
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def _stat(pid: int) -> list[bytes]:
    """The fields of proc(5) behind the name, which may hold anything; none when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            text = stream.read()
    except OSError:
        return []
    return text[text.rindex(b")") + 2:].split()


def start_ticks(pid: int) -> int:
    """When it started; 0 when it is gone."""
    process = look(pid)
    return process.start_ticks if process is not None else 0


def reap(pid: int, start_ticks: int) -> None:
    """Take the remains of one child of ours, if that is what has this pid."""
    fields = _stat(pid)
    if fields and int(fields[19]) == start_ticks:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass


def environment(pid: int) -> list[bytes]:
    """What it was started with, each ``NAME=value``; nothing for what we may not read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as stream:
            return stream.read().split(b"\0")
    except OSError:
        return []


def members(marker: bytes, known: Mapping[int, int], sessions: Container[int] = (), since_ticks: int = 0, *,
            number: int = 0, spared_group: int = 0, root: int = 0, spared: frozenset[bytes] = frozenset()) -> list[Process]:
    """Every living process that belongs to a run or node, in no order; each gets signal `number` as soon as it is found.

    It belongs when it is one of `known` ({pid: start ticks}), carries `marker`, is in one of the `sessions`, or descends
    from a member or from `root`. Nothing that started before `since_ticks` is looked at, nor this process and its
    ancestors, nor what carries one of the `spared` markers or descends from it; those of `spared_group` get no signal.
    Raises OSError without /proc.
    """
    hunt = _Hunt(marker, known, sessions, since_ticks, number, spared_group, root, spared)
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
                 spared_group: int, root: int, spared: frozenset[bytes]) -> None:
        self._marker, self._known, self._sessions, self._since_ticks = marker, known, sessions, since_ticks
        self._number, self._spared_group, self._root, self._spared_markers = number, spared_group, root, spared
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
        belongs = (self._known.get(process.pid) == process.start_ticks or process.session in self._sessions
                   or process.parent in self._found or (process.parent == self._root and process.parent)
                   or self._marker in environment(process.pid))
        return bool(belongs) and not self._is_spared(process)

    def _is_spared(self, process: Process | None) -> bool:
        """Whether it, or what it descends from, carries one of the spared markers."""
        while self._spared_markers and process is not None and process.pid > 1:
            if not self._spared_markers.isdisjoint(environment(process.pid)):
                return True
            process = look(process.parent)
        return False

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
                if (child.pid not in self._found and child.pid not in self._spared
                        and child.start_ticks >= self._since_ticks and not self._is_spared(child)):
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
