"""A process whose end this node waits for, a child of ours or not.

Twisted reaps what its own spawnProcess started, and after a re-exec it does not know what the image before it started.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

from twisted.python.failure import Failure

from iop.node import processes


class Watched:
    """Calls `over` once, when the process has ended; it is reaped then, if it is ours. Raises OSError: it is no more."""

    def __init__(self, reactor: Any, pid: int, start_ticks: int, over: Callable[[], None]) -> None:
        self._reactor = reactor
        self._pid = pid
        self._start_ticks = start_ticks
        self._over = over
        self._descriptor = os.pidfd_open(pid)
        reactor.addReader(self)

    def fileno(self) -> int:
        return self._descriptor

    def signal(self, number: int) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):    # it has ended, and is not reaped yet
                signal.pidfd_send_signal(self._descriptor, number)

    def logPrefix(self) -> str:
        return f"process {self._pid}"

    def doRead(self) -> None:
        self._close()
        processes.reap(self._pid, self._start_ticks)
        self._over()

    def connectionLost(self, reason: Failure) -> None:
        self._close()

    def _close(self) -> None:
        if self._descriptor >= 0:
            self._reactor.removeReader(self)
            os.close(self._descriptor)
            self._descriptor = -1
