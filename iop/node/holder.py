"""The supervisor of one program as its node sees it: the socket to it, and whether it lives.

::

    unwatched --its pid is known--> watched --it has ended--> gone       (once, whatever else comes)
        |                                                      ^
        +-- the connection ended, or none could be made -------+

A supervisor has one connection, the latest. Whoever may write to its folder can take it; it is made again then.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IDelayedCall

from iop.node import control, guardian, journal, processes, words
from iop.node.remains import same
from iop.node.watched import Watched

BUSY_S = 0.05               # a supervisor whose backlog is full is asked again
AGAIN_S = 1.0               # one that lives and has ended the connection is connected to again
FORCE_S = 30.0              # after KILL, it is killed itself: twice a hunt for what forks (12 s) is over by then
GO_ON = signal.SIGCONT      # one that was stopped hears nothing


class Holder:
    """`grew(offset)` is called when its journal has grown, and `gone()` once, when it is no more."""

    def __init__(self, reactor: Any, folder: str, grew: Callable[[int], None], gone: Callable[[], None]) -> None:
        self.state = "unwatched"
        self.known: dict[str, Any] = {}           # as journal.identity() tells it; whoever reads the journal adds to it
        self.witnessed = False                    # its program lived when the connection ended
        self._reactor = reactor
        self._folder = folder
        self._grew = grew
        self._tell_gone = gone
        self._control = control.Control(grew, self._disconnected)
        self._watched: Watched | None = None
        self._last_word = 0                       # STOP or KILL
        self._due: list[IDelayedCall] = []        # while it lives

    def connect(self) -> None:
        """To one that is about to start. Raises OSError."""
        control.connect(self._reactor, self._folder, self._control)

    def take_up(self) -> None:
        """One that an earlier start of this node left, living or not."""
        known = self.known = journal.identity(self._folder)
        above = guardian.read(self._folder)
        if same(above, "guardian", "guardian_ticks"):
            self.watch(above["guardian"], above["guardian_ticks"])
        elif same(known, "pid", "ticks"):
            self.watch(known["pid"], known["ticks"])
        elif above:
            processes.reap(above["guardian"], above["guardian_ticks"])      # it was ours before a re-exec
        self._reach()

    def watch(self, pid: int, start_ticks: int) -> None:
        """It is this process."""
        try:
            self._watched = Watched(self._reactor, pid, start_ticks, self._gone)
            self.state = "watched"
        except OSError:                           # gone already; the end of the connection tells
            processes.reap(pid, start_ticks)

    def say(self, kind: int, payload: bytes = b"") -> None:
        """One of iop.node.words; kept until there is a connection."""
        self._control.say(kind, payload)

    def end(self, kind: int) -> None:
        """STOP or KILL; behind KILL it is killed itself if that is of no use."""
        self._last_word = max(self._last_word, kind)
        self.say(kind)
        self._signal(GO_ON)
        if self._watched is not None:
            self._watched.signal(GO_ON)
        if kind == words.KILL and self.state != "gone":
            self._later(FORCE_S, self._signal, signal.SIGKILL)

    def _signal(self, number: int) -> None:
        supervisor = processes.look(self.known.get("pid", 0))
        if supervisor is not None and supervisor.start_ticks == self.known["ticks"]:
            processes.send_signal(supervisor, number)

    def _later(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        self._due = [due for due in self._due if due.active()]
        self._due.append(self._reactor.callLater(seconds, call, *arguments))

    def _reach(self) -> None:
        try:
            self.connect()
        except BlockingIOError:
            self._later(BUSY_S, self._reach)
        except OSError:
            self._disconnected()

    def _disconnected(self) -> None:
        """It is about to be gone; until it has been reaped it may still look alive."""
        self._identify()
        self.witnessed = same(self.known, "child", "child_ticks")
        if self.state == "unwatched":
            self._gone()
        elif self.state == "watched":
            self._control = control.Control(self._grew, self._disconnected)
            if self._last_word:                   # it may not have been heard
                self._control.say(self._last_word)
            self._later(AGAIN_S, self._reach)

    def _gone(self) -> None:
        self._identify()
        self.state = "gone"
        for due in self._due:
            if due.active():
                due.cancel()
        self._tell_gone()

    def _identify(self) -> None:
        self.known = self.known or journal.identity(self._folder)
