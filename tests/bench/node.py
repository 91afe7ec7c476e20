"""A node that does nothing but send events as fast as its window allows: the load for the edge's relay.

It speaks the real protocol over a blocking socket: Hello, RunsReport, one target `bench/flood` with 4,000 slots, and
then, once `streams` runs have been asked for and a line came on standard input, `total` output events over all of them
in turn, `per_batch` a frame.

    node.py PORT TOKEN STREAMS TOTAL PER_BATCH

It prints `ready`, `asked`, and `sent N` once all is acknowledged.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
import time

from iop.proto import link_pb2, node_pb2, run_pb2

TEXT = " the quick brown fox jumps over"
RAW = ('{{"id":"chatcmpl-fake0000000000000001","object":"chat.completion.chunk","created":1790000000,"model":"m",'
       '"choices":[{{"index":0,"delta":{{"content":"{}"}},"finish_reason":null}}]}}')


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


class Node:
    def __init__(self, port: int, token: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray()
        self.requests: list[run_pb2.RunRequest] = []
        self.unacked = 0                               # bytes
        self.sent: dict[str, list[tuple[int, int]]] = {}
        self.send(hello=link_pb2.Hello(peer_id="bench", token=token, instance="1", protocol=1))

    def send(self, **frame) -> None:
        data = link_pb2.Frame(**frame).SerializeToString()
        self.socket.sendall(struct.pack(">I", len(data)) + data)

    def receive(self, wait_s: float) -> bool:
        """Handle what has come, waiting at most `wait_s` for the first of it; whether there was anything."""
        if not select.select([self.socket], [], [], wait_s)[0]:
            return False
        data = self.socket.recv(1 << 20)
        if not data:
            raise SystemExit("the edge closed the link")
        self.buffer += data
        while len(self.buffer) >= 4:
            (length,) = struct.unpack_from(">I", self.buffer)
            if len(self.buffer) < 4 + length:
                break
            frame = link_pb2.Frame.FromString(bytes(self.buffer[4:4 + length]))
            del self.buffer[:4 + length]
            self.handle(frame)
        return True

    def wait_for_line(self) -> None:
        """Stay alive until standard input has a line, or ends."""
        while not select.select([sys.stdin], [], [], 0)[0]:
            self.receive(0.01)
        sys.stdin.readline()

    def handle(self, frame: link_pb2.Frame) -> None:
        kind = frame.WhichOneof("kind")
        if kind == "welcome":
            self.window = int(frame.welcome.limits.link_window_bytes * 0.9) or 1 << 22
            self.run_window = int(frame.welcome.limits.run_window_bytes * 0.9) or 1 << 19
            self.send(runs_report=link_pb2.RunsReport(last=True))
        elif kind == "ping":
            self.send(pong=link_pb2.Pong(nonce=frame.ping.nonce))
        elif kind == "node_config_payload":
            self.send(config_applied=node_pb2.ConfigApplied(revision=frame.node_config_payload.revision))
            target = node_pb2.TargetState(adapter="bench", target="flood", aliases=["flood"], concurrency=4000, ready=True)
            self.send(node_status=node_pb2.NodeStatus(version="0", policy_mode="locked", adapters=[
                node_pb2.AdapterState(adapter="bench", concurrency=4000, targets=[target])]))
            print("ready", flush=True)
        elif kind == "run_request":
            self.requests.append(frame.run_request)
            self.send(run_accepted=run_pb2.RunAccepted(run_id=frame.run_request.run_id, attempt=frame.run_request.attempt))
        elif kind == "event_ack":
            ack = frame.event_ack
            queue = self.sent.get(ack.run_id, [])
            while queue and queue[0][0] <= ack.through_seq:
                self.unacked -= queue.pop(0)[1]
        elif kind in ("reject", "goodbye"):
            raise SystemExit(str(frame))


def batch_frame(run_id: str, first_seq: int, events: bytes) -> bytes:
    """An EventBatch frame put together by hand, so that this process is not what is measured."""
    body = b"\x0a\x20" + run_id.encode() + b"\x10\x01\x18" + varint(first_seq) + events
    frame = b"\xf2\x01" + varint(len(body)) + body
    return struct.pack(">I", len(frame)) + frame


def encoded(events: list[run_pb2.RuntimeEvent]) -> bytes:
    return b"".join(b"\x22" + varint(len(data)) + data for data in (event.SerializeToString() for event in events))


def flood(node: Node, total: int, per_batch: int) -> int:
    """Send `total` events over all runs in turn, then an ending each. Returns what was sent."""
    event = run_pb2.RuntimeEvent(at_us=time.time_ns() // 1000, output=TEXT, raw=RAW.format(TEXT).encode())
    events = encoded([event] * per_batch)
    runs = [request.run_id for request in node.requests]
    seq = {run_id: 1 for run_id in runs}
    node.sent = {run_id: [] for run_id in runs}
    sent = turn = 0
    out: list[bytes] = []
    while sent < total:
        while node.unacked > node.window or sum(size for _, size in node.sent[runs[turn]]) > node.run_window:
            if out:
                node.socket.sendall(b"".join(out))
                out.clear()
            node.receive(5)
        run_id = runs[turn]
        frame = batch_frame(run_id, seq[run_id], events)
        seq[run_id] += per_batch
        node.sent[run_id].append((seq[run_id] - 1, len(frame)))
        node.unacked += len(frame)
        out.append(frame)
        sent += per_batch
        turn = (turn + 1) % len(runs)
        if len(out) >= max(1, 512 // per_batch):
            node.socket.sendall(b"".join(out))
            out.clear()
            node.receive(0)
    ending = encoded([run_pb2.RuntimeEvent(at_us=time.time_ns() // 1000, completed=run_pb2.Outcome(code="ok"))])
    node.socket.sendall(b"".join(out) + b"".join(batch_frame(run_id, seq[run_id], ending) for run_id in runs))
    deadline = time.monotonic() + 60
    while node.unacked and time.monotonic() < deadline:      # until history has all of it
        node.receive(1)
    return sent


def main(port: int, token: str, streams: int, total: int, per_batch: int) -> None:
    node = Node(port, token)
    while len(node.requests) < streams:
        node.receive(5)
    print("asked", flush=True)
    node.wait_for_line()
    print("sent", flood(node, total, per_batch), flush=True)
    node.wait_for_line()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:6]))
