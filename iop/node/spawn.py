"""Starts programs, marked so that all of each can be found again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet import defer
from twisted.internet.defer import Deferred
from zope.interface import implementer

from iop.interfaces import ISpawner
from iop.node.program import Program
from iop.spawning import SpawnRequest


@implementer(ISpawner)
class Spawner:
    """`markers` go into every program's environment, beside IOP_RUN_ID; `started(run_id, pid)` is told of each."""

    def __init__(self, reactor: Any, markers: Mapping[str, str] | None = None,
                 started: Callable[[str, int], None] = lambda run_id, pid: None) -> None:
        self._reactor = reactor
        self._markers = dict(markers or {})
        self._started = started
        self._programs: dict[Program, Deferred[None]] = {}   # and what fires when it has ended

    def spawn(self, program: SpawnRequest, receiver: Any) -> Program:
        running = Program(self._reactor, program, receiver)
        self._programs[running] = ended = Deferred()

        def forget(value: None) -> None:
            self._programs.pop(running, None)
            ended.callback(None)

        running.ended.addCallback(forget)
        running.start({**program.env, **self._markers, "IOP_RUN_ID": program.run_id})
        if running.pid:
            self._started(program.run_id, running.pid)
        return running

    def kill_all(self) -> Deferred[None]:
        """KILL whatever still runs; fires when all have ended."""
        waiting = list(self._programs.values())
        for program in list(self._programs):
            program.kill()
        return defer.gatherResults(waiting).addCallback(lambda _: None)
