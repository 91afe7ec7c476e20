"""N nodes that are linked over TLS and do nothing but answer pings.

    dialers.py PORT FILE-OF-TOKENS

Each line it reads is how many are to be linked from then on; it answers `linked N SECONDS`, and `lost N` at the end.
"""

from __future__ import annotations

import resource
import select
import socket
import ssl
import struct
import sys
import time

from iop.proto import link_pb2, node_pb2

OPENING = 32     # of them at once, below what a listener lets in ungreeted


class Dialer:
    """One link, on a socket that never blocks."""

    def __init__(self, context: ssl.SSLContext, port: int, peer_id: str, token: str) -> None:
        plain = socket.create_connection(("127.0.0.1", port))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = context.wrap_socket(plain)
        self.buffer = bytearray()
        self.ready = False
        self.send(hello=link_pb2.Hello(peer_id=peer_id, token=token, instance="1", protocol=1, version="0"))
        self.socket.setblocking(False)

    def send(self, **frame) -> None:
        data = link_pb2.Frame(**frame).SerializeToString()
        self.socket.sendall(struct.pack(">I", len(data)) + data)

    def receive(self) -> bool:
        """Handle what has come; False when the link is gone."""
        while True:
            try:
                data = self.socket.recv(65536)
            except (ssl.SSLWantReadError, BlockingIOError):
                return True
            if not data:
                return False
            self.buffer += data
            while len(self.buffer) >= 4:
                (length,) = struct.unpack_from(">I", self.buffer)
                if len(self.buffer) < 4 + length:
                    break
                frame = link_pb2.Frame.FromString(bytes(self.buffer[4:4 + length]))
                del self.buffer[:4 + length]
                self.handle(frame)

    def handle(self, frame: link_pb2.Frame) -> None:
        kind = frame.WhichOneof("kind")
        if kind == "welcome":
            self.send(runs_report=link_pb2.RunsReport(last=True))
        elif kind == "ping":
            self.send(pong=link_pb2.Pong(nonce=frame.ping.nonce))
        elif kind == "node_config_payload":
            self.send(config_applied=node_pb2.ConfigApplied(revision=frame.node_config_payload.revision))
            target = node_pb2.TargetState(adapter="bench", target="idle", concurrency=4, ready=True)
            self.send(node_status=node_pb2.NodeStatus(version="0", policy_mode="locked", adapters=[
                node_pb2.AdapterState(adapter="bench", concurrency=4, targets=[target])]))
            self.ready = True
        elif kind in ("reject", "goodbye"):
            raise SystemExit(str(frame))


def main(port: int, tokens: list[str]) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    poll, dialers, lost = select.epoll(), {}, 0

    def look(wait_s: float) -> None:
        nonlocal lost
        for descriptor, _ in poll.poll(wait_s):
            if not dialers[descriptor].receive():
                poll.unregister(descriptor)
                dialers.pop(descriptor).socket.close()
                lost += 1

    for line in iter(sys.stdin.readline, ""):
        begun, wanted = time.monotonic(), int(line)
        while len(dialers) < wanted:
            for number in range(len(dialers), min(len(dialers) + OPENING, wanted)):
                dialer = Dialer(context, port, f"node-{number}", tokens[number])
                dialers[dialer.socket.fileno()] = dialer
                poll.register(dialer.socket, select.EPOLLIN)
            while not all(dialer.ready for dialer in dialers.values()):
                look(1)
        took = time.monotonic() - begun
        rest = time.monotonic() + 12     # so long that each link is pinged
        while time.monotonic() < rest:
            look(0.2)
        print("linked", len(dialers), took, lost, flush=True)


if __name__ == "__main__":
    with open(sys.argv[2]) as file:
        main(int(sys.argv[1]), file.read().split())
