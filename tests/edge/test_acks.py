"""When a node is told what history has: at once after quiet, at a pace then, and before a window is full."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from twisted.internet.task import Clock

from iop.edge.acks import PACE_S, Acks
from iop.link.limits import default_limits
from iop.runs import EventId

LIMITS = default_limits()


class World:
    """Two runs of one node; `told` holds what it was sent."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []
        self.clock = Clock()
        self.node = SimpleNamespace(ready=True, link=SimpleNamespace(limits=LIMITS, send=self._send))
        self.acks = Acks(SimpleNamespace(get=lambda node_id: self.node), self.clock)  # type: ignore[arg-type]

    def _send(self, kind: str, ack: Any) -> None:
        self.told.append((ack.run_id, ack.through_seq))

    def committed(self, seq: int, size: int = 100, run_id: str = "r1", attempt: int = 1) -> None:
        run: Any = SimpleNamespace(sent=True, run_id=run_id, record=SimpleNamespace(node_id="n1", attempt=1))
        self.acks.committed(run, EventId(attempt, seq), size)
        self.clock.advance(0)


def test_the_first_goes_at_once_and_what_follows_at_a_pace_with_its_latest_place() -> None:
    world = World()
    for seq in (1, 2, 3):
        world.committed(seq)
    world.committed(1, run_id="r2")
    assert world.told == [("r1", 1)]
    world.clock.advance(PACE_S)
    assert world.told == [("r1", 1), ("r1", 3), ("r2", 1)]
    world.clock.advance(PACE_S)
    world.committed(4)
    assert world.told[3:] == [("r1", 4)], "after quiet, at once again"


def test_a_quarter_of_a_window_goes_at_once() -> None:
    world = World()
    world.committed(1)
    for seq in (2, 3, 4):
        world.committed(seq, LIMITS.run_window_bytes // 10)
    assert world.told == [("r1", 1), ("r1", 4)]
    for number in range(20):
        world.committed(1, LIMITS.run_window_bytes // 8, f"s{number}")
    assert len(world.told) == 18, "many small ones fill the window of the link"


def test_what_came_once_more_is_answered_at_once() -> None:
    world = World()
    world.committed(1)
    world.acks.due("n1", "r9", 1, 7)
    world.clock.advance(0)
    assert world.told == [("r1", 1), ("r9", 7)]


def test_a_node_without_its_verdicts_is_told_nothing_nor_one_of_what_the_edge_made() -> None:
    world = World()
    world.committed(1, attempt=2)
    world.node.ready = False
    world.committed(1)
    assert not world.told
