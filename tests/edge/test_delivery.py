"""A node with a spool, an edge that dies, links that break and a history that lags: nothing lost, doubled or reordered."""

from __future__ import annotations

import random
from typing import Any

import pytest
from zope.interface import implementer

from iop.edge.packing import unpack
from iop.events import ending, output
from iop.interfaces import ILinkHandler
from iop.proto.link_pb2 import VERDICT_CONTINUE, RunReport, RunsReport
from iop.proto.node_pb2 import ConfigApplied
from iop.proto.run_pb2 import EventBatch, Outcome, RunRequest, RuntimeEvent
from iop.runs import EventId
from iop.testing.links import LinkPair
from tests.edge.conftest import FakeEdge, entry, prompt, status

EVENTS = 60


@implementer(ILinkHandler)
class SpoolingNode:
    """What the rules of a node ask for (N1 to N3), as short as it can be said."""

    def __init__(self) -> None:
        self.request: RunRequest | None = None
        self.spool: list[RuntimeEvent] = []
        self.trimmed = 0                 # events that were acknowledged
        self.pair: Any = None
        self.link: Any = None
        self.open = True

    def connect(self, edge: FakeEdge) -> None:
        self.pair = LinkPair(edge.handler_for, self, edge.clock, peer_id="n1", peers=edge.peers)

    def link_up(self, link: Any) -> None:
        self.going = False
        reports = []
        if self.request is not None and (self.open or self.trimmed < len(self.spool)):
            reports.append(RunReport(run_id=self.request.run_id, attempt=1, first_unacked=self.trimmed + 1,
                                     last_spooled=len(self.spool), open=self.open))
        self.link = link
        link.send("runs_report", RunsReport(runs=reports, last=True))

    def frame_received(self, link: Any, kind: str, message: Any, packed: bytes) -> None:
        if kind == "run_request":
            assert self.request is None, "started twice"
            self.request, self.going = message, True
        elif kind == "node_config_payload":
            link.send("config_applied", ConfigApplied(revision=message.revision))
            link.send("node_status", status())
        elif kind == "event_ack":
            assert message.through_seq <= len(self.spool)
            self.trimmed = max(self.trimmed, message.through_seq)
        elif kind == "resend":
            self.send_from(message.from_seq)
        elif kind == "verdicts":
            for word in message.runs:
                assert word.verdict == VERDICT_CONTINUE
                assert word.committed_seq >= self.trimmed, "the edge has lost what it acknowledged"
                self.trimmed, self.going = word.committed_seq, True
                self.send_from(word.committed_seq + 1)

    def read_finished(self, link: Any) -> None:
        pass

    def link_down(self, link: Any, reason: Any) -> None:
        self.link, self.going = None, False

    def emit(self, *events: RuntimeEvent) -> None:
        self.spool += events
        if self.going:
            self.send_from(len(self.spool) - len(events) + 1)

    def send_from(self, seq: int) -> None:
        events = self.spool[seq - 1:]
        if events and self.link is not None and self.request is not None:
            self.link.send("event_batch", EventBatch(run_id=self.request.run_id, attempt=1, first_seq=seq, events=events))


class Reader:
    """Reads as it likes, over every restart, naming the last event it saw."""

    def __init__(self) -> None:
        self.after = EventId(0, 0)
        self.seen: list[str] = []

    def read(self, edge: FakeEdge, run_id: str, limit: int) -> None:
        found: list[Any] = []
        edge.service.cursor(run_id, self.after).addCallback(found.append)
        if not found:
            return
        cursor = found[0]
        taken = cursor.take(limit)
        page: list[Any] = taken if isinstance(taken, list) else []
        if not isinstance(taken, list):
            taken.addCallback(page.extend)
        self.seen += [event.output or "." for one in page for event in one.batch.events]
        self.after = cursor.after
        cursor.close()


@pytest.mark.parametrize("seed", [random.randrange(1 << 32) for _ in range(25)])
def test_whatever_breaks_every_event_is_there_once_and_in_order(seed: int) -> None:
    dice = random.Random(seed)
    edge, node, reader = FakeEdge(entry("n1"), tail_bytes=3000), SpoolingNode(), Reader()
    node.connect(edge)
    node.pair.pump()
    run_id = edge.submit(prompt()).run_id
    node.pair.pump()
    edge.history.held = True
    number = 0
    while number < EVENTS:
        what = dice.random()
        if what < 0.45:
            count = dice.randint(1, 3)
            node.emit(*[output(str(number + index)) for index in range(count)])
            number += count
        elif what < 0.60:
            node.pair.pump()
        elif what < 0.75:
            edge.history.commit()
            edge.clock.advance(dice.choice((0, 1)))
        elif what < 0.80:
            edge.history.trouble = dice.choice(("", "the disk is full"))
        elif what < 0.90:
            reader.read(edge, run_id, dice.choice((1, 500, 5000)))
        elif what < 0.95:
            node.pair.cut()
            node.connect(edge)
        else:
            node.pair.cut()
            edge = edge.restarted()
            edge.history.held = True
            node.connect(edge)
    node.open = False
    node.emit(ending("completed", Outcome(code="ok")))
    edge.history.trouble, edge.history.held = "", False
    for _ in range(5):
        edge.history.commit()
        edge.clock.advance(1)
        node.pair.pump()
    wanted = [*map(str, range(number)), "."]
    stored = [event.output or "." for batch in edge.history.kept.batches[run_id] for event in unpack(batch.packed).events]
    assert stored == wanted, f"seed {seed}"
    assert edge.history.kept.runs[run_id].state == "completed" and not edge.history.kept.late
    assert node.trimmed == len(node.spool)
    for _ in range(200):
        reader.read(edge, run_id, 500)
    assert reader.seen == wanted, f"seed {seed}"
