"""How long starting a program holds up the reactor of a node that has 1 GB of memory and 5,000 descriptors.

Measured in a process of its own, through ISpawner.spawn: the call itself, and until the program has ended the longest that a
timer was late.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from rows import Rows
from zope.interface import implementer

from iop.interfaces import IProgramReceiver

MEMORY_BYTES, DESCRIPTORS, STARTS = 1 << 30, 5_000, 30


@implementer(IProgramReceiver)
class Told:
    """An IProgramReceiver that waits for the end."""

    def __init__(self, ended: Any) -> None:
        self.program_ended = ended

    def program_started(self, pid: int) -> None:
        pass

    def output_received(self, channel, data: bytes, offset: int = 0) -> None:
        pass


def inside(folder: str) -> None:
    """The process that is measured: prints the milliseconds of each start as JSON."""
    from probe import Probe
    from twisted.internet import reactor
    from twisted.internet.defer import Deferred
    from twisted.internet.task import deferLater

    from iop.node.spawn import Spawner
    from iop.spawning import SpawnRequest

    reactor.seconds = time.monotonic
    spawner = Spawner(reactor, folder)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    memory = bytearray(os.urandom(4096) * (MEMORY_BYTES // 4096))
    held = [socket.socketpair() for _ in range(DESCRIPTORS // 2)]
    told: list[dict[str, float]] = []

    async def run() -> None:
        probe = Probe(reactor, 0.001)
        for number in range(STARTS):
            await deferLater(reactor, 0.1)
            probe.take()
            ended: Deferred = Deferred()
            request = SpawnRequest(run_id=f"{number:032x}", attempt=1, argv=("/bin/true",), cwd="/", env={})
            begun, worked = time.perf_counter(), time.thread_time()
            spawner.spawn(request, Told(ended.callback))
            call, work = time.perf_counter() - begun, time.thread_time() - worked
            ending = await ended
            if ending.exit_code != 0:
                raise SystemExit(f"the program did not run: {ending}")
            told.append({"call_ms": 1000 * call, "call_cpu_ms": 1000 * work, "blocked_ms": probe.take()["worst_ms"]})
        print(json.dumps({"starts": told, "memory": len(memory), "descriptors": 2 * len(held)}), flush=True)

    def begin() -> None:
        Deferred.fromCoroutine(run()).addErrback(lambda failure: print(failure.getTraceback(), file=sys.stderr)).addBoth(
            lambda _: reactor.stop())

    reactor.callWhenRunning(begin)
    reactor.run()


def measure(rows: Rows) -> None:
    name = "a program starts at 1 GB, 5,000 descriptors"
    with tempfile.TemporaryDirectory(prefix="iop-starting-") as folder:
        done = subprocess.run(["taskset", "-c", "0", sys.executable, os.path.abspath(__file__), folder],
                              stdout=subprocess.PIPE, timeout=240, check=False)
    if not done.stdout:
        rows.missing(name, "the process that was to be measured printed nothing")
        return
    found = json.loads(done.stdout)["starts"]
    call, work, blocked = (statistics.median(one[kind] for one in found) for kind in ("call_ms", "call_cpu_ms", "blocked_ms"))
    rows.at_most(name, blocked, "ms", 10, f"the latest timer from the call to the program's end; the call itself takes "
                 f"{call:.1f} ms, {work:.1f} ms of them work", starts=found)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        inside(sys.argv[1])
    else:
        measure(Rows())
