"""What a node is asked about a run: to carry it out, which it must answer in time, and to stop it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

from iop.edge.bus import Bus
from iop.edge.node import Node
from iop.edge.registry import Registry
from iop.edge.run import Run
from iop.errors import IOPError, StartTimeout
from iop.proto.run_pb2 import CancelRequest, Source

ANSWER_S = 30.0                  # for a node to accept or refuse; its own record gives up after 5

log = Logger()


class Orders:
    """`unanswered(run, node, error)` is called where a node's link lives and nothing came of a run that it was sent."""

    def __init__(self, registry: Registry, bus: Bus, clock: Any, unanswered: Callable[[Run, Node, IOPError], object]) -> None:
        self._registry = registry
        self._bus = bus
        self._clock = clock
        self._unanswered = unanswered

    def send(self, run: Run, node: Node, link: Any) -> None:
        """Send it to its node. Raises what the link raises; it may have been sent all the same."""
        run.forget_deadline()
        run.sent, run.resend_from, run.instance = True, 0, node.instance
        offer = node.offers.get((run.record.adapter, run.record.target))
        run.takes_input = offer.takes_input if offer is not None else None
        link.send("run_request", run.order())
        run.deadline = self._clock.callLater(ANSWER_S, self._too_late, run, node, link)
        self._bus.tell("run_placed", node_id=node.node_id, run_id=run.run_id, source=run.request.source,
                       adapter=run.record.adapter, target=run.record.target, attempt=run.record.attempt,
                       reason=run.record.placement)

    def _too_late(self, run: Run, node: Node, link: Any) -> None:
        """Nobody is to wait for that run for ever. Where the link broke meanwhile, its report decides."""
        run.deadline = None
        if not run.record.ended and node.link is link and run.silent:
            log.error("{node_id} has not answered to run {run_id} in {seconds:g} s", node_id=node.node_id,
                      run_id=run.run_id, seconds=ANSWER_S)
            self._unanswered(run, node, StartTimeout(
                f"The node {node.node_id} has not said in {ANSWER_S:g} s whether it takes the run."))

    def stop(self, run: Run, source: Source, reason: str) -> None:
        """Have its node stop it; nothing happens where that is not connected, and its report will tell."""
        node = self._registry.get(run.record.node_id)
        if run.sent and node is not None and node.ready:
            node.link.send("cancel_request", CancelRequest(run_id=run.run_id, reason=reason, source=source))
