"""An edge or a node as twistd runs it, with named crash points that are armed from outside, and a ledger of its own.

Nothing of this is in iop/: the points are put around the product's own seams when the process starts::

    armed.py iop-edge -c edge.yaml      one process
    armed.py nursery                    preloads the product, then forks such processes as it is told on standard input

``IOP_FAULTS_ARM`` names a file of 8 bytes that is mapped into memory: the first one is the number of a point of `POINTS`
(0: none), the second how often it is passed before the process exits, at once, by os._exit(). ``IOP_FAULTS_LEDGER`` names
the ledger of a node: one line an event, written once the product has said that it is spooled.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import json
import mmap
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

EXIT = 86                 # of a process that died at a point
_PDEATHSIG = 1            # prctl(2)


class Point(NamedTuple):
    """One place to die: around `module:attribute`, before or after it. `delay_s` lets bytes leave the process first."""

    name: str
    where: str
    when: str
    delay_s: float = 0.0


POINTS = (
    Point("", "", ""),
    Point("edge.received", "iop.edge.runs:Runs.append", "after"),
    Point("edge.relayed", "iop.edge.runs:Runs.flush", "after", 0.004),
    Point("edge.before_commit", "iop.store.writer:HistoryWriter.carry_out", "after"),
    Point("edge.committed", "iop.edge.recorder:Recorder._committed", "before"),
    Point("edge.acknowledged", "iop.edge.acks:Acks._send", "after", 0.004),
    Point("node.before_spool", "iop.node.segments:SegmentLog.append", "before"),
    Point("node.torn", "iop.node.segments:SegmentLog._write", "before"),
    Point("node.spooled", "iop.node.spool:Spool._tell", "before"),
    Point("node.accepted", "iop.node.run:Run.start", "before"),
    Point("node.acknowledged", "iop.node.spool:Spool.acknowledged", "after"),
)
NUMBERS = {point.name: number for number, point in enumerate(POINTS) if point.name}
SPOOLED = "iop.node.spool:Spool._stored"        # the seam behind which an event counts as emitted


class Arm:
    """The mapped file."""

    def __init__(self, file: str) -> None:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(descriptor, 8)
        self._map = mmap.mmap(descriptor, 8)
        os.close(descriptor)

    def set(self, name: str, after: int = 0) -> None:
        self._map[1] = min(after, 255)
        self._map[0] = NUMBERS[name]

    @property
    def armed(self) -> str:
        return POINTS[self._map[0]].name

    def disarm(self) -> None:
        self._map[0] = 0

    def passed(self, number: int, delay_s: float, arguments: tuple[Any, ...]) -> None:
        """The process is at this point now: the hot path of all of them, one byte to look at."""
        if self._map[0] != number:
            return
        if self._map[1]:
            self._map[1] -= 1
            return
        self._map[0] = 0
        if POINTS[number].name == "node.torn":
            tear(*arguments)
        if delay_s:
            timer = threading.Timer(delay_s, os._exit, (EXIT,))
            timer.daemon = True
            timer.start()
        else:
            os._exit(EXIT)


def tear(log: Any, data: bytes, at: int) -> None:
    """Half of a record comes to the disk."""
    os.pwrite(log._descriptor, data[:max(1, len(data) // 2)], at)


def resolve(where: str) -> tuple[Any, str]:
    """(The object that holds the attribute, the attribute's name) of ``module:A.b``."""
    module, _, path = where.partition(":")
    holder: Any = importlib.import_module(module)
    *names, last = path.split(".")
    for name in names:
        holder = getattr(holder, name)
    getattr(holder, last)
    return holder, last


def around(where: str, before: Callable[..., None] | None, after: Callable[..., None] | None) -> None:
    """Have `before(*arguments)` and `after(*arguments)` called around a function of the product."""
    holder, name = resolve(where)
    original = getattr(holder, name)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        if before is not None:
            before(*arguments)
        result = original(*arguments, **named)
        if after is not None:
            after(*arguments)
        return result

    setattr(holder, name, wrapped)


class Ledger:
    """What this node has spooled: ``run_id attempt seq sha256-of-the-event`` a line."""

    def __init__(self, file: str) -> None:
        self._descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def stored(self, _: Any, put: Any, *__: Any) -> None:
        """One emit is on disk."""
        from iop.proto.run_pb2 import EventBatch

        lines = []
        for kept in put.batches:
            batch = EventBatch.FromString(kept.packed)
            lines += [f"{batch.run_id} {batch.attempt} {batch.first_seq + offset} {digest_of(event)}\n"
                      for offset, event in enumerate(batch.events)]
        os.write(self._descriptor, "".join(lines).encode())


def digest_of(event: Any) -> str:
    """What an event is, in 16 hex digits: the same wherever it was kept."""
    return hashlib.sha256(event.SerializeToString(deterministic=True)).hexdigest()[:16]


def arm(service: str) -> None:
    """Put the points of this process, and the ledger of a node, around the product."""
    role = service.removeprefix("iop-")
    file = os.environ.get("IOP_FAULTS_ARM")
    if file:
        armed = Arm(file)
        for number, point in enumerate(POINTS):
            if point.name.startswith(role + "."):
                def passed(*arguments: Any, number: int = number, delay_s: float = point.delay_s) -> None:
                    armed.passed(number, delay_s, arguments)
                around(point.where, *((passed, None) if point.when == "before" else (None, passed)))
    ledger = os.environ.get("IOP_FAULTS_LEDGER")
    if ledger and role == "node":
        around(SPOOLED, None, Ledger(ledger).stored)


def serve(words: list[str]) -> None:
    """Be that process: what `twistd` would do with these words."""
    from twisted.scripts.twistd import run

    arm(words[0])
    sys.argv = ["twistd", "--nodaemon", "--pidfile=", *words]
    # What a process that executes itself again would say: this file, not whoever forked us.
    sys.orig_argv = [sys.executable, os.path.abspath(__file__), *words]
    sys.exit(run())


# --- the nursery: an import of the product takes a second of a core, a fork of one that has it takes milliseconds


def preload() -> None:
    """All but iop.tap.edge, since conch's user authentication imports the reactor, which must not be forked."""
    from twisted.plugin import getPlugins

    for module in ("twisted.scripts.twistd", "twisted.application.app", "twisted.internet.epollreactor", "iop.tap.node",
                   "iop.edge.service", "iop.edge.routes", "iop.edge.commands", "iop.link.listen", "iop.store.history",
                   "iop.web.transport", "iop.metrics", "twisted.conch.ssh.transport", "twisted.conch.ssh.keys", "psycopg",
                   "sqlalchemy.dialects.sqlite.pysqlite", "sqlalchemy.dialects.postgresql.psycopg", "alembic.command"):
        importlib.import_module(module)
    from iop import adapters
    from iop.interfaces import IAdapterFactory

    list(getPlugins(IAdapterFactory, adapters))
    if "twisted.internet.reactor" in sys.modules:
        raise RuntimeError("a reactor was made before the fork")


def nursery() -> None:
    """One JSON line in: {"words", "folder", "log", "environment"}; one line out: the pid. Ends with standard input."""
    import gc

    preload()
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)     # nobody asks for exit codes; nothing stays as a zombie
    mother = os.getpid()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for text in sys.stdin:
        asked = json.loads(text)
        pid = os.fork()
        if not pid:
            be_born(asked, mother)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


def be_born(asked: dict[str, Any], mother: int) -> None:
    """In the child: what a fresh process would have."""
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != mother:
        os._exit(1)
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.closerange(3, 64)
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    serve(asked["words"])


if __name__ == "__main__":
    sys.path.pop(0)           # this folder: its names are none of the product's business
    if sys.argv[1] == "nursery":
        nursery()
    else:
        serve(sys.argv[1:])
