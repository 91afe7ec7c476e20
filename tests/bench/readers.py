"""N readers of event streams on raw sockets; counts events until all streams have ended.

    readers.py PORT KEY STREAMS chat            each posts a streaming chat request to the model `flood`
    readers.py PORT KEY STREAMS runs ID ...     each reads /api/v1/runs/ID/events
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

MARKS = {"chat": (b'"delta":{"content":"', b"data: [DONE]"), "runs": (b'"type":"output"', b'"type":"completed"')}


def request_chat(port: int, key: str) -> bytes:
    body = json.dumps({"model": "flood", "stream": True, "messages": [{"role": "user", "content": "go"}]}).encode()
    return (f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body


def request_events(port: int, key: str, run_id: str) -> bytes:
    return (f"GET /api/v1/runs/{run_id}/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n"
            "Accept: text/event-stream\r\n\r\n").encode()


def main(port: int, key: str, streams: int, mode: str, run_ids: list[str]) -> None:
    poll, sockets, tails = select.epoll(), {}, {}
    for index in range(streams):
        connection = socket.create_connection(("127.0.0.1", port))
        run_id = run_ids[index % len(run_ids)] if run_ids else ""
        connection.sendall(request_chat(port, key) if mode == "chat" else request_events(port, key, run_id))
        connection.setblocking(False)
        poll.register(connection, select.EPOLLIN)
        sockets[connection.fileno()] = connection
        tails[connection.fileno()] = b""
    mark, end = MARKS[mode]
    print("ready", flush=True)
    sys.stdin.readline()
    keep = max(len(mark), len(end)) - 1
    count = ended = 0
    begun = time.perf_counter()
    deadline = begun + 120
    while ended < streams and time.perf_counter() < deadline:
        for descriptor, _ in poll.poll(1):
            data = sockets[descriptor].recv(262144)
            if not data:
                poll.unregister(descriptor)
                ended += 1
                continue
            joined = tails[descriptor] + data
            count += joined.count(mark) - tails[descriptor].count(mark)
            if end in joined:
                poll.unregister(descriptor)
                ended += 1
            tails[descriptor] = joined[-keep:]
    print(count, time.perf_counter() - begun, flush=True)
    if not count:
        print(f"no event came; the last words of a stream: {tails.popitem()[1]!r}", file=sys.stderr)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5:])
