"""Real programs for the tests of spawn.py, and what they told."""

from __future__ import annotations

import sys
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from iop.interfaces import IProgramReceiver
from iop.node import processes
from iop.runs import new_run_id
from iop.spawning import ProgramEnding, SpawnRequest

PATH = "/usr/local/bin:/usr/bin:/bin"


@implementer(IProgramReceiver)
class Told:
    """Keeps what a program did."""

    def __init__(self) -> None:
        self.pid = 0
        self.output = {2: b"", 3: b""}
        self.ended: Deferred[ProgramEnding] = Deferred()
        self.first: Deferred[bytes] = Deferred()
        self.reads = 0

    def program_started(self, pid: int) -> None:
        self.pid = pid

    def output_received(self, channel: int, data: bytes, offset: int) -> None:
        self.reads += 1
        self.output[channel] += data
        if not self.first.called:
            self.first.callback(data)

    def program_ended(self, ending: ProgramEnding) -> None:
        self.ended.callback(ending)

    @property
    def stdout(self) -> bytes:
        return self.output[2]

    @property
    def stderr(self) -> bytes:
        return self.output[3]


def shell(script: str, **more: Any) -> SpawnRequest:
    return SpawnRequest(**{"run_id": new_run_id(), "attempt": 1, "argv": ("/bin/sh", "-c", script), "cwd": "/",
                           "env": {"PATH": PATH}, "int_s": 1.0, "term_s": 1.0} | more)


def python(script: str, **more: Any) -> SpawnRequest:
    return shell("", argv=(sys.executable, "-I", "-S", "-c", script), **more)


def survivors(run_id: str) -> list[processes.Process]:
    return processes.members(f"IOP_RUN_ID={run_id}".encode(), {})
