"""Children that a start in place inherits: they are ours to reap, and Twisted knows only those that it spawned itself."""

from __future__ import annotations

import os

from twisted.internet import process


class Inherited:
    """One child of an earlier start of this process; reaped as soon as it has ended (Twisted asks at each SIGCHLD)."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def reapProcess(self) -> None:
        try:
            reaped, _ = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:
            reaped = self._pid
        if reaped:
            process.unregisterReapProcessHandler(self._pid, self)

    def processEnded(self, status: int) -> None:
        """It had ended before anyone asked, and is reaped."""


def adopt_children() -> list[int]:
    """Called before anything is spawned: until then, every child is an inherited one. Their pids."""
    children = [int(name) for name in os.listdir("/proc") if name.isdigit() and _parent(name) == os.getpid()]
    for pid in children:
        process.registerReapProcessHandler(pid, Inherited(pid))
    return children


def _parent(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            text = stream.read()
    except OSError:
        return 0
    return int(text[text.rindex(b")") + 2:].split()[1])      # the name before may hold anything
