"""The web site of a process: its connections, and the sweep that keeps their deadlines."""

from __future__ import annotations

from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import ServerFactory
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from iop.web.admission import Admission
from iop.web.channel import Channel
from iop.web.dateheader import DateHeader

log = Logger()


class IWatcher(Protocol):
    """Who is told of answers; the route is the table's pattern, empty where none was found."""

    def http_answered(self, route: str, method: bytes, status: int, seconds: float) -> None:
        """An answer is out, `seconds` after its request's head."""

    def http_streaming(self, route: str, seconds: float) -> None:
        """A stream begins, `seconds` after its request's head."""


class Site(ServerFactory):
    """Makes Channels."""

    noisy = False

    def __init__(self, admission: Admission, clock: IReactorTime, watcher: IWatcher | None = None) -> None:
        self.admission = admission
        self.now = clock.seconds
        self.channels: set[Channel] = set()
        self._emptied: list[Deferred[None]] = []
        self.date = DateHeader()
        self._watcher = watcher
        self._sweep = LoopingCall(self.sweep)
        self._sweep.clock = clock

    def buildProtocol(self, addr: object) -> Channel:
        return Channel(self)

    def startFactory(self) -> None:
        if not self._sweep.running:
            self._sweep.start(1.0, now=False).addErrback(lambda failure: log.failure("the sweep ended", failure))

    def stopFactory(self) -> None:
        if self._sweep.running:
            self._sweep.stop()

    def sweep(self) -> None:
        now = self.now()
        for channel in list(self.channels):
            channel.swept(now)

    def answered(self, route: str, method: bytes, status: int, seconds: float) -> None:
        if self._watcher is not None:
            self._watcher.http_answered(route, method, status, seconds)

    def streaming(self, route: str, seconds: float) -> None:
        if self._watcher is not None:
            self._watcher.http_streaming(route, seconds)

    def disconnect_all(self) -> Deferred[None]:
        """End every connection, as a stopping process must; streams are broken off, so that readers come back.

        Fires when all are gone, and whoever waited on them has been told.
        """
        for channel in list(self.channels):
            channel.abort()
        emptied: Deferred[None] = Deferred()
        self._emptied.append(emptied)
        self._tell_emptied()
        return emptied

    def left(self, channel: Channel) -> None:
        """A connection is gone."""
        self.channels.discard(channel)
        self._tell_emptied()

    def _tell_emptied(self) -> None:
        while self._emptied and not self.channels:
            self._emptied.pop().callback(None)
