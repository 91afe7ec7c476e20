"""How a node starts and stops: in which order, and for how long at most.

::

    start: record opened --> orphans ended --> their runs closed in the record --> own targets --> dial
    stop:  no new runs --> running ones stopped --> their endings acknowledged --> Goodbye --> record closed
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

from twisted.internet import threads
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from iop.errors import NodeRestarted
from iop.files import remove_ready, write_ready
from iop.node.orphans import close_record, end_orphans
from iop.proto.node_pb2 import NodeConfigPayload

log = Logger()

STOP_S = 11.0     # a stop's ladder (3 and 5 s by default), a sweep, and the acknowledgements
KILL_S = 3.0      # then KILL
LAST_S = 1.0      # for what that caused; 20 s in all, with the Goodbye (5 s at most)


def _log_failure(failure: Failure) -> None:
    log.failure("the node does not start", failure)


class Lifecycle:
    """The order of things around one NodeService.

    `dial` starts the link and `hang_up` ends it (a Deferred); both None: somebody else brings the link. `told(text)` hears
    each step, for systemd; `not_started(failure)` is called when the node cannot start.
    """

    def __init__(self, reactor: Any = None, *, state: str = "", marker: str = "", dial: Callable[[], None] | None = None,
                 hang_up: Callable[[], Deferred[None]] | None = None, told: Callable[[str], None] = lambda text: None,
                 not_started: Callable[[Failure], None] = _log_failure) -> None:
        self._reactor = reactor
        self._state = state
        self._marker = marker
        self._dial = dial
        self._hang_up = hang_up
        self._told = told
        self._not_started = not_started
        self._starting: Deferred[None] | None = None
        self._settling: Deferred[None] | None = None
        self._stopping = False

    @property
    def _ready_file(self) -> str:
        return os.path.join(self._state, "node.ready.json")

    # --- starting

    def start(self, service: Any) -> None:
        """Once the reactor runs: before that, a failure could not end it."""
        if self._reactor is not None:
            self._reactor.callWhenRunning(self._begin, service)
        else:
            self._begin(service)

    def _begin(self, service: Any) -> None:
        if self._stopping:
            return
        self._starting = Deferred.fromCoroutine(self._start(service))
        self._starting.addErrback(self._not_started)

    async def _start(self, service: Any) -> None:
        remove_ready(self._ready_file)
        await service.record.open()
        if self._reactor is not None:
            await self._clear(service)
        service.offers.apply(NodeConfigPayload(whole=True))
        if self._dial is not None and not self._stopping:
            self._told("dialing the edge")
            self._dial()

    async def _clear(self, service: Any) -> None:
        """Nothing of an earlier instance is left when the edge hears of this one."""
        earlier = await service.record.open_runs()
        left = await end_orphans(self._reactor, self._marker, earlier)
        if left:
            log.error("{count} processes of an earlier start of this node cannot be ended", count=left)
        await close_record(service.record, earlier)
        await threads.deferToThreadPool(self._reactor, self._reactor.getThreadPool(), shutil.rmtree,
                                        os.path.join(self._state, "runs"), True)

    def configured(self, link: Any) -> None:
        """The edge knows all of this node: work may come."""
        self._told(f"linked to {link.peer_id}")
        if self._state and not self._stopping:
            try:
                write_ready(self._ready_file, {"pid": os.getpid(), "epoch": link.epoch})
            except OSError as error:     # a full disk: whoever waits for the file does not see it, but the edge has work
                log.warn("{file} cannot be written: {why}", file=self._ready_file, why=error.strerror)

    # --- stopping

    async def stop(self, service: Any) -> None:
        self._stopping = True
        remove_ready(self._ready_file)
        if self._starting is not None and not self._starting.called:
            await _after(self._starting)
        service.tell_status()
        for run in service.runs:
            run.stop(NodeRestarted("The node was stopped while it was driving this run."))
        await self._until_settled(service, STOP_S)
        if service.runs:
            log.warn("{count} runs do not end; killing what they started", count=len(service.runs))
            killed = service.tools.spawner.kill_all()
            await _bounded(killed, KILL_S, service.clock)
            await self._until_settled(service, LAST_S)
        if self._hang_up is not None:
            await self._hang_up()
        service.stop_timers()
        for backend in list(service.offers.backends.values()):
            backend.retire()
        await service.record.close()

    async def suspend(self, service: Any) -> None:
        """Like a stop, for another image of this process that goes on with what is supervised."""
        await self.stop(service)

    def settled(self, service: Any) -> None:
        """Called whenever a run or an acknowledgement came to its end."""
        if self._settling is not None and self._is_settled(service):
            settling, self._settling = self._settling, None
            settling.callback(None)

    def _is_settled(self, service: Any) -> bool:
        return not service.runs and (service.link is None or not len(service.outbox))

    async def _until_settled(self, service: Any, limit_s: float) -> None:
        if self._is_settled(service):
            return
        self._settling = settling = Deferred()
        await _bounded(settling, limit_s, service.clock)
        self._settling = None


def _after(source: Deferred[None]) -> Deferred[None]:
    waiting: Deferred[None] = Deferred()

    def passed(value: None) -> None:
        waiting.callback(None)

    source.addCallback(passed)
    return waiting


def _bounded(source: Deferred[None], limit_s: float, clock: Any) -> Deferred[None]:
    """Fires when `source` does, or after `limit_s`."""
    waiting: Deferred[None] = Deferred()
    timer = clock.callLater(limit_s, waiting.callback, None)

    def done(value: Any) -> None:
        if timer.active():
            timer.cancel()
            waiting.callback(None)

    source.addBoth(done)
    return waiting
