"""A node with N paced runs, and one that sends as many megabytes evenly meanwhile, as its window allows.

    pacednode.py PORT TOKEN N EVENTS PERIOD_S MEGABYTES

Each paced run sends EVENTS events, one every PERIOD_S, stamped with the monotonic clock. Each second it prints how many
megabytes of the large run were sent, and `sent` once all is acknowledged.
"""

from __future__ import annotations

import sys
import time

from node import Node, batch_frame, encoded

from iop.proto import run_pb2

PIECE = 1000             # characters in an event of the large run
PER_BATCH = 32


def event(text: str, **more) -> run_pb2.RuntimeEvent:
    return run_pb2.RuntimeEvent(at_us=time.time_ns() // 1000, output=text, **more)


class Load:
    def __init__(self, node: Node, events: int, period_s: float, megabytes: float) -> None:
        self.node = node
        self.events = events
        self.period_s = period_s
        self.bytes_left = megabytes * 1e6
        self.sent_mb = 0.0
        self.mb_per_s = 1.1 * megabytes / (events * period_s)
        self.begun = time.monotonic()
        runs = [request.run_id for request in node.requests]
        self.large, self.paced = runs[0], runs[1:]
        self.large_seq = 1
        self.piece = encoded([event("x" * PIECE)] * PER_BATCH)
        node.sent = {run_id: [] for run_id in runs}

    def send(self, run_id: str, first_seq: int, count: int, packed: bytes) -> None:
        frame = batch_frame(run_id, first_seq, packed)
        self.node.sent[run_id].append((first_seq + count - 1, len(frame)))
        self.node.unacked += len(frame)
        self.node.socket.sendall(frame)

    def more_of_the_large(self) -> bool:
        """Whether some was due, and there was room for it."""
        if self.bytes_left <= 0 or self.sent_mb > self.mb_per_s * (time.monotonic() - self.begun):
            return False
        if sum(size for _, size in self.node.sent[self.large]) > self.node.run_window // 2:
            return False
        self.send(self.large, self.large_seq, PER_BATCH, self.piece)
        self.large_seq += PER_BATCH
        self.bytes_left -= PER_BATCH * PIECE
        self.sent_mb += PER_BATCH * PIECE / 1e6
        return True

    def run(self) -> None:
        begun = told = self.begun
        for seq in range(1, self.events + 1):
            due = begun + seq * self.period_s
            for number, run_id in enumerate(self.paced):
                moment = due + number * self.period_s / len(self.paced)
                while (left := moment - time.monotonic()) > 0:
                    if self.node.receive(0) or not self.more_of_the_large():
                        self.node.receive(min(left, 0.002))
                self.send(run_id, seq, 1, encoded([event(f"@{time.monotonic_ns()}@")]))
            if time.monotonic() - told > 1:
                told = time.monotonic()
                print(self.sent_mb, flush=True)
        while self.bytes_left > 0:
            if not self.more_of_the_large():
                self.node.receive(0.1)
        print(self.sent_mb, flush=True)
        ending = encoded([run_pb2.RuntimeEvent(at_us=time.time_ns() // 1000, completed=run_pb2.Outcome(code="ok"))])
        self.send(self.large, self.large_seq, 1, ending)
        for run_id in self.paced:
            self.send(run_id, self.events + 1, 1, ending)
        while self.node.unacked:
            self.node.receive(1)
        print("sent", flush=True)


def main(port: int, token: str, runs: int, events: int, period_s: float, megabytes: float) -> None:
    node = Node(port, token)
    while len(node.requests) < runs + 1:
        node.receive(5)
    print("asked", flush=True)
    node.wait_for_line()
    Load(node, events, period_s, megabytes).run()
    node.wait_for_line()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]), float(sys.argv[6]))
