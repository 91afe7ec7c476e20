"""How a node starts and stops: in which order, and for how long at most.

::

    start:   record opened --> spool read --> open attempts taken up or ended --> orphans ended --> own targets --> dial
    stop:    no new runs --> running ones stopped --> their endings acknowledged --> Goodbye --> spool, record closed
    suspend: no new runs --> what cannot outlive this process ends, or is stopped --> the rest let go --> Goodbye --> ...

What the edge has not acknowledged by then stays in the spool, and the next start sends it.
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
from iop.node.box import Key
from iop.node.earlier import Earlier
from iop.node.orphans import end_orphans
from iop.node.servers import is_server
from iop.node.waiting import after, at_most
from iop.proto.node_pb2 import NodeConfigPayload

log = Logger()

STOP_S = 11.0     # a stop's ladder (3 and 5 s by default), a sweep, and the acknowledgements
KILL_S = 3.0      # then KILL
DRAIN_S = 20.0    # a suspended node waits for runs that cannot outlive it
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
        await self._clear(service)
        service.offers.apply(NodeConfigPayload(whole=True))
        if self._dial is not None and not self._stopping:
            self._told("dialing the edge")
            self._dial()

    async def _clear(self, service: Any) -> None:
        """What an earlier start left goes on or ends, before the edge hears of this one."""
        service.spool.recover()
        survivors = await self._survivors(service)
        earlier = await service.record.open_runs()
        servers = service.tools.servers.take_up({key for key in survivors if is_server(key)})
        going_on = Earlier(service).settle(earlier, survivors - servers) | servers
        service.spool.flush()
        if self._reactor is None:
            return
        left = await end_orphans(self._reactor, self._marker,
                                 [run for run in earlier if (run.run_id, run.attempt) not in going_on],
                                 frozenset(f"IOP_RUN_ID={run_id}".encode() for run_id, _ in going_on))
        if left:
            log.error("{count} processes of an earlier start of this node cannot be ended", count=left)
        await threads.deferToThreadPool(self._reactor, self._reactor.getThreadPool(), _clear_folders,
                                        os.path.join(self._state, "runs"), frozenset(run_id for run_id, _ in going_on))

    async def _survivors(self, service: Any) -> set[Key]:
        spawner = service.tools.spawner
        return await spawner.survivors() if spawner is not None else set()

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
        await self._close(service)
        began_s = service.clock.seconds()
        for run in service.runs:
            run.stop(NodeRestarted("The node was stopped while it was driving this run."))
        service.spool.flush()
        servers = service.tools.servers.stop()
        await self._until_settled(service, STOP_S)
        await at_most(servers, max(0.0, began_s + STOP_S - service.clock.seconds()), service.clock)
        if service.runs or not servers.called:
            log.warn("{count} runs or their servers do not end; killing what they started", count=len(service.runs))
            killed = service.tools.spawner.kill_all()
            await at_most(killed, KILL_S, service.clock)
            await self._until_settled(service, LAST_S)
        await self._let_go(service)

    async def suspend(self, service: Any) -> None:
        """Like a stop, but what outlives this process is left to the one that comes after it."""
        await self._close(service)
        service.drain(True)
        service.suspending = True
        await self._until_settled(service, DRAIN_S)
        for run in service.runs:
            if not run.outlives:
                run.stop(NodeRestarted("The node was started again while it was driving this run."))
        service.spool.flush()
        await self._until_settled(service, LAST_S)
        service.runs.detach()
        service.tools.servers.let_go()
        await self._let_go(service)

    async def _close(self, service: Any) -> None:
        """No new work."""
        self._stopping = True
        remove_ready(self._ready_file)
        if self._starting is not None and not self._starting.called:
            await after(self._starting)
        service.tell_status()

    async def _let_go(self, service: Any) -> None:
        if self._hang_up is not None:
            await self._hang_up()
        service.stop_timers()
        for backend in list(service.offers.backends.values()):
            backend.retire()
        service.spool.close()
        await service.record.close()

    def settled(self, service: Any) -> None:
        """Called whenever a run or an acknowledgement came to its end."""
        if self._settling is not None and self._is_settled(service):
            settling, self._settling = self._settling, None
            settling.callback(None)

    def _is_settled(self, service: Any) -> bool:
        if service.suspending:
            return all(run.outlives for run in service.runs)
        return not service.runs and (service.link is None or not len(service.spool))

    async def _until_settled(self, service: Any, limit_s: float) -> None:
        if self._is_settled(service):
            return
        self._settling = settling = Deferred()
        await at_most(settling, limit_s, service.clock)
        self._settling = None


def _clear_folders(folder: str, spared: frozenset[str]) -> None:
    """Blocking: remove the folders of runs, but for those of `spared`."""
    if os.path.isdir(folder):
        for name in os.listdir(folder):
            if name not in spared:
                shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
