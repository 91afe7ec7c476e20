"""How long an edge takes from its start to the first frame that it accepts, with a million stored events."""

from __future__ import annotations

import os
import sqlite3
import statistics
import tempfile
import time

from edges import Edge, cpu_seconds
from node import Node, batch_frame, encoded
from rows import Rows

from iop.events import now_us
from iop.proto import run_pb2
from iop.proto.link_pb2 import Frame

RUNS, ROWS_A_RUN, EVENTS_A_ROW, OPEN_RUNS = 10_000, 25, 4, 100


def fill(database: str) -> None:
    """A million events of ended runs, and runs that were open when the edge ended."""
    event = run_pb2.RuntimeEvent(at_us=now_us(), output=" the quick brown fox jumps over", raw=b"x" * 180)
    packed = Frame(event_batch=run_pb2.EventBatch(run_id="0" * 32, attempt=1, first_seq=1,
                                                  events=[event] * EVENTS_A_ROW)).SerializeToString()
    connection = sqlite3.connect(database)
    now = now_us()
    with connection:
        connection.executemany(
            "INSERT INTO batches (run_id, attempt, first_seq, last_seq, packed) VALUES (?, 1, ?, ?, ?)",
            ((f"{run:032x}", 1 + row * EVENTS_A_ROW, (row + 1) * EVENTS_A_ROW, packed)
             for run in range(RUNS) for row in range(ROWS_A_RUN)))
        connection.executemany(
            "INSERT INTO runs (run_id, state, adapter, target, node_id, attempt, created_us, placed_us, started_us, "
            "ended_us, face, principal, request, outcome, outcome_code) "
            "VALUES (?, ?, 'bench', 'flood', 'bench', 1, ?, ?, ?, ?, 'http', 'bench', ?, ?, ?)",
            ((f"{run:032x}", "running" if live else "completed", now, now, now, 0 if live else now,
              run_pb2.RunRequest(run_id=f"{run:032x}", adapter="bench", target="flood").SerializeToString(),
              b"" if live else run_pb2.Outcome(code="ok").SerializeToString(), "" if live else "ok")
             for run in range(RUNS + OPEN_RUNS) for live in (run >= RUNS,)))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


class Returning(Node):
    """A node that comes back with an open run, and tells its next event as soon as it may."""

    def __init__(self, port: int, token: str, run_id: str) -> None:
        self.run_id = run_id
        self.accepted = False
        super().__init__(port, token)

    def handle(self, frame: Frame) -> None:
        kind = frame.WhichOneof("kind")
        if kind == "welcome":
            reports = [{"run_id": f"{run:032x}", "attempt": 1, "first_unacked": 1, "last_spooled": 1, "open": True}
                       for run in range(RUNS, RUNS + OPEN_RUNS)]
            self.send(runs_report={"runs": reports, "last": True})
        elif kind == "verdicts":
            data = batch_frame(self.run_id, 1, encoded([run_pb2.RuntimeEvent(at_us=now_us(), output="x")]))
            self.socket.sendall(data)
        elif kind == "event_ack":
            self.accepted = frame.event_ack.run_id == self.run_id
        elif kind == "ping":
            super().handle(frame)


def start_s(folder: str, run_id: str) -> tuple[float, float, float]:
    """Seconds to the acknowledgement of the first event, until it could be reached, and of the edge's processor time."""
    edge = Edge(folder, wait=False)
    try:
        reached = edge.wait_ready()
        node = Returning(edge.link, edge.token, run_id)
        while not node.accepted and time.monotonic() < edge.started + 60:
            node.receive(1)
        if not node.accepted:
            raise SystemExit("the edge acknowledged nothing")
        return time.monotonic() - edge.started, reached, cpu_seconds(edge.pid)
    finally:
        edge.stop()


def measure(rows: Rows, rounds: int = 5) -> None:
    times, empty = [], []
    with tempfile.TemporaryDirectory(prefix="iop-starts-") as folder:
        edge = Edge(folder)
        edge.stop()
        database = os.path.join(edge.state, "history.db")
        fill(database)
        size_mb = os.path.getsize(database) / 1e6
        for turn in range(rounds):
            with tempfile.TemporaryDirectory(prefix="iop-starts-") as other:
                fresh = Edge(other, wait=False)
                empty.append(fresh.wait_ready())
                fresh.stop()
            times.append(start_s(folder, f"{RUNS + turn:032x}"))     # each turn its own: stored events cannot be taken away
    whole, reached, worked = (statistics.median(column) for column in zip(*times, strict=True))
    rows.at_most("edge start, 1,000,000 events, to 1st accepted", whole, "s", 3,
                 f"to its acknowledgement, with {OPEN_RUNS} open runs and {size_mb:.0f} MB; reachable after {reached:.2f} s, "
                 f"with an empty history after {statistics.median(empty):.2f} s; {worked:.2f} s of processor time")


if __name__ == "__main__":
    measure(Rows())
