"""The signals of a process, and how it starts again in place: same pid, same command line, new code and configuration.

::

    USR2 --> suspended --> reactor stopped --> execve --> started --> what was held back meanwhile arrives

A mask outlives an exec while handlers do not: what comes while the new start has no handlers yet is held back, or it
would end the process.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

HELD = frozenset((signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR2))


class Signals:
    """HUP reads the configuration again, USR2 starts the process again in place, TERM and INT end it with exit code 0.

    (By itself, twistd would die of the signal.) Without `restart`, USR2 does nothing.
    """

    def __init__(self, reactor: Any, reread: Callable[[], object], restart: Callable[[], object] = lambda: None) -> None:
        self.end_asked = False
        self._reactor = reactor
        self._reread = reread
        self._restart = restart

    def install(self) -> None:
        """Called once the reactor runs, since it sets its own handlers when it starts."""
        signal.signal(signal.SIGHUP, self._asked)
        signal.signal(signal.SIGUSR2, self._asked)
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGINT, self._end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        self._reactor.callFromThread(self._reread if number == signal.SIGHUP else self._restart)

    def _end(self, number: int, frame: FrameType | None) -> None:
        if not self.end_asked:           # a second one, while the first is being obeyed, changes nothing
            self.end_asked = True
            self._reactor.callFromThread(self._reactor.stop)


def can_start_again() -> bool:
    """Whether the process stays the one that was started: twistd without --nodaemon forks, so that its pid would change."""
    return bool({"-n", "--nodaemon"} & set(sys.orig_argv))


def hold() -> None:
    """From here on, signals wait for the new start: a reactor that stops puts back the handlers that end a process."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD)


def start_again(environment: Mapping[str, str], end_asked: bool) -> None:
    """Become a new start of this process; does not return. Nothing but the standard streams is handed on.

    `end_asked`: the end was asked for meanwhile, and is left to the new start, which knows of all that still runs.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    hold()
    if end_asked:
        os.kill(os.getpid(), signal.SIGTERM)
    for name in os.listdir("/proc/self/fd"):
        _close_on_exec(int(name))
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], dict(environment))  # noqa: S606  # no shell is the point


def _close_on_exec(descriptor: int) -> None:
    if descriptor > 2:
        try:
            os.set_inheritable(descriptor, False)
        except OSError:
            pass                         # the one that listed them
