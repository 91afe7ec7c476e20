"""Who holds what a killed supervisor leaves: its parent, which does nothing else. Standard library only.

::

    node -- guardian -- supervisor -- program ...
               |            x  killed: all that it held become children of the guardian, wherever they had hidden
               +-- KILL until none is left --> guardian.json: how many lived --> gone

A process that has forked twice, left its session and scrubbed its environment is found by nobody but its subreaper
(prctl(2)), and when that is killed its parent is init. So there are two, one above the other; whichever is killed, the other
one ends the run. Where both are, it is not known what is left.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from iop.node import child, processes, supervise

FILE = "guardian.json"
LIMIT_S = 12.0
PAUSE_S = 0.01
_NO_MARKER = b"\0"           # stands in no environment: what descends from the guardian is all that is looked for


def main() -> None:
    """Fork: the child is the supervisor."""
    folder = sys.argv[1]
    child.be_subreaper()
    known: dict[str, Any] = {"guardian": os.getpid(), "guardian_ticks": processes.start_ticks(os.getpid()),
                             "boot": processes.boot_id()}
    note(folder, known)
    pid = os.fork()
    if not pid:
        supervise.main()
    os.closerange(supervise.LISTENER, os.sysconf("SC_OPEN_MAX"))     # a socket that we held would not refuse
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status):
        found, left = end_family()
        note(folder, known | {"found": found, "left": left})
    os._exit(0)


def end_family() -> tuple[int, int]:
    """KILL whatever descends from this process: (how many lived, how many are left)."""
    found: set[tuple[int, int]] = set()
    deadline = time.monotonic() + LIMIT_S
    while True:
        alive = processes.members(_NO_MARKER, {}, number=signal.SIGKILL, root=os.getpid())
        found |= {(process.pid, process.start_ticks) for process in alive}
        if _childless() and not alive:
            return len(found), 0
        if time.monotonic() > deadline:
            return len(found), len(alive)
        time.sleep(PAUSE_S)


def _childless() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def note(folder: str, known: dict[str, Any]) -> None:
    """What a later start of the node reads. On a full disk it is not there, and then nothing is known."""
    place = os.path.join(folder, FILE)
    try:
        with open(place + ".new", "w", encoding="ascii", opener=_private) as stream:
            json.dump(known, stream)
        os.rename(place + ".new", place)
    except OSError:
        return


def read(folder: str) -> dict[str, Any]:
    """What a guardian noted; {} for nothing."""
    try:
        with open(os.path.join(folder, FILE), encoding="ascii") as stream:
            told = json.load(stream)
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
