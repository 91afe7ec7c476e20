"""Readers of paced streams: how old each event is when it is read. Or one that opens its stream and takes nothing of it.

    pacedreaders.py PORT KEY STREAMS EVENTS read|stall
"""

from __future__ import annotations

import re
import select
import socket
import statistics
import sys
import time

from readers import request_chat

STAMP = re.compile(rb"@(\d+)@")
END = b"data: [DONE]"


def main(port: int, key: str, streams: int, events: int, how: str) -> None:
    poll, sockets, rests = select.epoll(), {}, {}
    for _ in range(streams):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(request_chat(port, key))
        connection.setblocking(False)
        poll.register(connection, select.EPOLLIN)
        sockets[connection.fileno()], rests[connection.fileno()] = connection, b""
    print("ready", flush=True)
    if how == "stall":
        sys.stdin.readline()
        return
    lags_ms: list[float] = []
    deadline = time.monotonic() + 300
    while sockets and time.monotonic() < deadline:
        for descriptor, _ in poll.poll(1):
            data = sockets[descriptor].recv(262144)
            now = time.monotonic_ns()
            joined = rests[descriptor] + data
            ends = 0
            for match in STAMP.finditer(joined) if events else ():
                lags_ms.append((now - int(match[1])) / 1e6)
                ends = match.end()
            rests[descriptor] = joined[max(ends, len(joined) - 64):]
            if not data or END in joined:
                poll.unregister(descriptor)
                sockets.pop(descriptor).close()
    cuts = statistics.quantiles(lags_ms, n=100) if len(lags_ms) > 1 else [0.0] * 99
    print(len(lags_ms), cuts[49], cuts[98], flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
