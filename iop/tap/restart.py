"""A node that starts again in place, so that new code and a new configuration cost no run whose program has a supervisor.

::

    asked --> configuration checked --> suspended --> reactor stopped --> start_again (signals.py)
                   |
                   +-- refused: told, and nothing has changed
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import ReactorNotRunning
from twisted.logger import Logger
from twisted.python.failure import Failure

from iop.errors import Conflict, IOPError
from iop.tap import signals
from iop.tap.notify import Notifier
from iop.tap.statelock import StateLock

SUSPEND_S = 25.0          # a node drains for 20 s at most, and then closes its files

log = Logger()


class Restart:
    """`check()` raises the IOPError of what a new start would refuse; `suspend()` returns a Deferred.

    `end_asked()`: whether TERM has come meanwhile.
    """

    def __init__(self, reactor: Any, check: Callable[[], object], suspend: Callable[[], Deferred[Any]], notifier: Notifier,
                 lock: StateLock, *, end_asked: Callable[[], bool]) -> None:
        self.suspended: Deferred[None] | None = None      # once it is under way; fires when nothing is left to wait for
        self._reactor = reactor
        self._check = check
        self._suspend = suspend
        self._end_asked = end_asked
        self._notifier = notifier
        self._lock = lock

    def asked_by_signal(self) -> None:
        with suppress(IOPError):         # told in the log and in the lock's file
            self.ask()

    def ask(self) -> None:
        """Begin, in the next turn: whoever asked can be answered. Raises the IOPError of why not, with nothing changed."""
        if self.suspended is not None:
            return
        try:
            if not signals.can_start_again():
                raise Conflict("This node was started by a twistd that went into the background; start it with --nodaemon.")
            self._check()
        except IOPError as error:
            log.error("the node goes on as it was: {why}", why=error.sentence)
            self._lock.restart_asked(error.message)
            raise
        log.info("starting again in place")
        self._lock.restart_asked()
        self._notifier.reloading()
        self.suspended = Deferred()
        self._reactor.callLater(0, self._begin)

    def _begin(self) -> None:
        suspending = maybeDeferred(self._suspend).addTimeout(SUSPEND_S, self._reactor)
        suspending.addErrback(self._not_suspended).addCallback(self._stop)

    def _not_suspended(self, failure: Failure) -> None:
        """What a kill -9 leaves is taken up again, so this is too."""
        log.failure("the node was not suspended in order; starting again all the same", failure)

    def _stop(self, _: object) -> None:
        self._reactor.addSystemEventTrigger("after", "shutdown", signals.hold)
        atexit.register(self._start_again)          # twistd has put everything away by then, a pid file too
        if self.suspended is not None:
            self.suspended.callback(None)
        with suppress(ReactorNotRunning):           # the end was asked for meanwhile
            self._reactor.stop()

    def _start_again(self) -> None:
        signals.start_again(self._notifier.handed_on(os.environ), self._end_asked())
