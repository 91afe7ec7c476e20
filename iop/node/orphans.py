"""What an earlier instance of this node left running is ended before this one is ready."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from typing import Any

from twisted.internet import threads
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from iop.node import processes

log = Logger()

TERM_S = 2.0      # after TERM, before KILL
LIMIT_S = 12.0    # KILL again until none is left
PAUSE_S = 0.05


def end_orphans(reactor: Any, marker: str, recorded: Iterable[Any], spared: frozenset[bytes] = frozenset()) -> Deferred[int]:
    """End every process that carries `marker` (NAME=value) or stands in `recorded` NodeRuns, but for those that carry one of
    the `spared` markers; how many could not be."""
    return threads.deferToThreadPool(reactor, reactor.getThreadPool(), end_all, marker, list(recorded), spared)


def end_all(marker: str, recorded: Iterable[Any] = (), spared: frozenset[bytes] = frozenset()) -> int:
    """Blocking: TERM, then KILL until none is left; how many are left nevertheless."""
    known = _still_there(recorded)
    found = _signal_all(marker.encode(), known, signal.SIGTERM, spared)
    if not found:
        return 0
    log.info("ending {count} processes of an earlier start of this node", count=found)
    started = time.monotonic()
    while found and time.monotonic() < started + TERM_S + LIMIT_S:
        time.sleep(PAUSE_S)
        late = time.monotonic() > started + TERM_S
        found = _signal_all(marker.encode(), known, signal.SIGKILL if late else 0, spared)
    return found


def _still_there(recorded: Iterable[Any]) -> dict[int, int]:
    """{pid: start ticks} of the recorded programs that live: same boot, same start time."""
    boot = processes.boot_id()
    return {run.pid: run.start_ticks for run in recorded
            if run.pid and run.boot_id == boot and processes.start_ticks(run.pid) == run.start_ticks}


def _signal_all(marker: bytes, known: dict[int, int], number: int, spared: frozenset[bytes]) -> int:
    """Signal each once (0: none), remembering all that were seen; how many there are."""
    found = processes.members(marker, known, tuple(known), number=number, spared=spared)
    known.update((process.pid, process.start_ticks) for process in found)
    return len(found)
