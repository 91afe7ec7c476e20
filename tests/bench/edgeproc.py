"""`twist iop-edge` as it is, with a probe of its reactor beside it; `--keep-nothing` gives it a history that keeps nothing.

    edgeproc.py [--keep-nothing] [--period MS] [--series N] [--keys FILE] -- OPTIONS OF twist iop-edge

`--keys`: keys as JSON instead of keys.yaml, where there are more of them than that may hold.

At SIGUSR1 it prints what its probe has seen, as a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time

import msgspec
from probe import Probe
from twisted.application.twist._twist import Twist
from twisted.internet import reactor
from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

import iop.tap.edge
from iop.errors import NoSuchRun
from iop.interfaces import IHistory
from iop.keys import Key
from iop.metrics import Metrics


@implementer(IHistory)
class NothingKept:
    """A history that takes everything and keeps nothing: what the rest of the edge costs."""

    available = True

    def __init__(self, url: str, clock: object) -> None:
        self._events = 0
        self._clock = clock

    def open(self) -> Deferred:
        return succeed(None)

    def close(self) -> Deferred:
        return succeed(None)

    def backlog(self) -> int:
        return 0

    def create_run(self, record) -> Deferred:
        return succeed(record)

    def update_run(self, run_id, changes) -> Deferred:
        return succeed(None)

    def append(self, rows) -> Deferred:
        """Fires in a turn of its own, as an answer of a thread does: rows of several reads become one here too."""
        done: Deferred = Deferred()
        self._clock.callLater(0, done.callback, None)
        return done

    def append_late(self, run_id, attempt, first_seq, last_seq, packed) -> Deferred:
        return succeed(None)

    def run(self, run_id) -> Deferred:
        return Deferred.fromCoroutine(_no_such_run())

    def runs(self, query) -> Deferred:
        return succeed(([], ""))

    def open_runs(self) -> Deferred:
        return succeed([])

    def batches(self, run_id, after, limit_bytes) -> Deferred:
        return succeed([])

    def committed(self, run_id, attempt) -> Deferred:
        return succeed(0)

    committed_late = committed

    def append_event(self, event) -> Deferred:
        self._events += 1
        return succeed(self._events)

    def events(self, after, limit) -> Deferred:
        return succeed([])

    def audit(self, source, action, detail) -> Deferred:
        return succeed(None)

    def sessions(self) -> Deferred:
        return succeed([])

    def put_session(self, record) -> Deferred:
        return succeed(None)


async def _no_such_run() -> None:
    raise NoSuchRun()


def more_series(count: int) -> None:
    """Have every Metrics made from now on hold `count` more series."""
    start = Metrics.start

    def started(self: Metrics) -> None:
        start(self)
        for number in range(count):
            self._runs.ended(f"code_{number // 100}", {"adapter": "vllm", "target": f"model_{number % 100}"})

    Metrics.start = started


def main() -> None:
    at = sys.argv.index("--")
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep-nothing", action="store_true")
    parser.add_argument("--period", type=float, default=5.0)
    parser.add_argument("--series", type=int, default=0)
    parser.add_argument("--keys", default="")
    asked = parser.parse_args(sys.argv[1:at])
    if asked.keep_nothing:
        iop.tap.edge.History = NothingKept
    if asked.keys:
        with open(asked.keys, "rb") as file:
            keys = msgspec.json.decode(file.read(), type=list[Key])
        iop.tap.edge.load_keys = lambda file: keys
    if asked.series:
        more_series(asked.series)
    probes: list[Probe] = []
    reactor.callWhenRunning(lambda: probes.append(Probe(reactor, asked.period / 1000)))

    def tell() -> None:
        told = probes[0].take() | {"reactor_s": time.thread_time(), "process_s": time.process_time()}
        print(json.dumps(told), file=sys.__stdout__, flush=True)   # sys.stdout is the log here

    signal.signal(signal.SIGUSR1, lambda number, frame: reactor.callFromThread(tell))
    Twist.main(["twist", "--log-level=warn", "iop-edge", *sys.argv[at + 1:]])


if __name__ == "__main__":
    main()
