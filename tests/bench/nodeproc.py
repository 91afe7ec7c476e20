"""`twistd iop-node` as it is, with an adapter that emits as fast as it is let; `--keep-nothing` gives it a spool that writes
nothing.

    nodeproc.py [--keep-nothing] FOLDER PORT TOKEN EVENTS PER_BATCH

Its target is `bench/flood`. It prints `asked` for each run, and begins all of them when a line comes; each emits EVENTS,
PER_BATCH at once, in a turn of its own, as if its backend's socket had just been read. At the end: `acknowledged`.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, ClassVar

from node import RAW, TEXT
from twisted.internet import reactor
from twisted.internet.defer import Deferred, succeed
from twisted.scripts.twistd import run as twistd
from zope.interface import implementer

import iop.tap.node
from iop.adapters.executions import Execution
from iop.interfaces import IAdapter, IAdapterFactory
from iop.node.segments import Segment, SegmentLog
from iop.proto.run_pb2 import Outcome, RuntimeEvent


class NothingWritten(SegmentLog):
    """Segments that keep nothing: what the rest of the node costs."""

    def append(self, payloads, **how) -> Segment:
        if self.current is None:
            self.current = Segment("", bytes(4))
        return self.current


class Flooding(Execution):
    def __init__(self, sink: Any, events: int, per_batch: int) -> None:
        super().__init__(sink)
        self._left = events
        self._per_batch = per_batch
        self._due: Any = None

    def begin(self) -> None:
        if self._due is None:
            self._due = reactor.callLater(0, self._more)

    def _more(self) -> None:
        """New messages each time, as an adapter makes them."""
        self._due = None
        if self._left <= 0:
            self._end("completed", Outcome(code="ok"))
            return
        now = time.time_ns() // 1000
        count = min(self._left, self._per_batch)
        self._left -= count
        self._emit([RuntimeEvent(at_us=now, output=TEXT, raw=RAW.format(TEXT).encode()) for _ in range(count)])
        if not self._paused:
            self.begin()

    def _pause(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _stop(self, error) -> None:
        self._end_with(error)

    _resume = begin


@implementer(IAdapter)
class FloodAdapter:
    def __init__(self, events: int, per_batch: int) -> None:
        self._form = events, per_batch
        self._waiting: list[Flooding] = []

    def execute(self, spec, sink) -> Flooding:
        run = Flooding(sink, *self._form)
        self._waiting.append(run)
        print("asked", file=sys.__stdout__, flush=True)
        return run

    def begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        for run in waiting:
            run.begin()

    def close(self) -> Deferred:
        return succeed(None)


@implementer(IAdapterFactory)
class FloodFactory:
    name: ClassVar[str] = "bench"
    default_concurrency: ClassVar[int] = 4000

    def __init__(self, adapter: FloodAdapter) -> None:
        self._adapter = adapter

    def settings(self, target) -> object:
        return object()

    def requirements(self, settings) -> list:
        return []

    def build(self, targets, tools) -> FloodAdapter:
        return self._adapter


class Input:
    """One line of standard input, on the reactor."""

    def __init__(self, callback) -> None:
        self._callback = callback

    def fileno(self) -> int:
        return 0

    def logPrefix(self) -> str:
        return "input"

    def doRead(self) -> None:
        os.read(0, 100)
        reactor.removeReader(self)
        self._callback()

    def connectionLost(self, reason) -> None:
        pass


def main(folder: str, port: str, token: str, events: int, per_batch: int, keep_nothing: bool) -> None:
    state = os.path.join(folder, "node")
    os.makedirs(state, mode=0o700)
    with open(os.open(os.path.join(folder, "token"), os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(token)
    with open(os.path.join(folder, "node.yaml"), "w") as file:
        file.write(f"node: {{id: bench, state: {state}}}\n"
                   f"edge: {{host: 127.0.0.1, port: {port}, plain: true, token_file: {folder}/token}}\n"
                   "adapters: {bench: {concurrency: 4000, targets: {flood: {concurrency: 4000}}}}\n")
    adapter = FloodAdapter(events, per_batch)
    iop.tap.node.process.adapter_factories = lambda: {"bench": FloodFactory(adapter)}
    if keep_nothing:
        iop.tap.node.SegmentLog = NothingWritten
    spools: list[Any] = []
    made = iop.tap.node.Spool
    iop.tap.node.Spool = lambda *arguments: spools.append(made(*arguments)) or spools[-1]

    def look() -> None:
        if spools[0]:
            reactor.callLater(0.02, look)
        else:
            print("acknowledged", file=sys.__stdout__, flush=True)

    def begin() -> None:
        adapter.begin()
        reactor.callLater(0.1, look)

    reactor.callWhenRunning(lambda: reactor.addReader(Input(begin)))
    sys.argv[:] = ["twistd", "--nodaemon", "--pidfile=", f"--logfile={folder}/node.log", "iop-node",
                   "-c", f"{folder}/node.yaml"]
    twistd()


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--keep-nothing"]
    main(*words[:3], int(words[3]), int(words[4]), "--keep-nothing" in sys.argv)
