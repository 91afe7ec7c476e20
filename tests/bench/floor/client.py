"""argv: port N mode(count|lat). Reads SSE on N raw sockets until stdin says total; prints totals, latencies."""

import re
import select
import socket
import sys
import time

port, N, mode = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
ep = select.epoll()
fds = {}
for i in range(N):
    s = socket.create_connection(("127.0.0.1", port))
    s.sendall(b"GET /sse/%d HTTP/1.1\r\nHost: x\r\n\r\n" % (0 if mode.startswith("same") else i))
    s.setblocking(False)
    ep.register(s, select.EPOLLIN)
    fds[s.fileno()] = s
left = N
while left:
    for fd, _ in ep.poll(5):
        d = fds[fd].recv(65536)
        if b"hi\n\n" in d:
            left -= 1
print("ready", flush=True)
total = int(sys.stdin.readline())
got = 0
lat = []
rx = re.compile(rb'"content":"(\d+) ')
now = time.monotonic_ns
nreads = 0
t0 = time.perf_counter()
deadline = t0 + 60
while got < total and time.perf_counter() < deadline:
    for fd, _ in ep.poll(1):
        d = fds[fd].recv(262144)
        nreads += 1
        if mode.endswith("count"):
            got += d.count(b"\n\n")  # a split '\n|\n' is rare; corrected at end by deadline
        else:
            t = now()
            m = rx.findall(d)
            got += len(m)
            for x in m:
                lat.append(t - int(x))
w = time.perf_counter() - t0
lat.sort()
n = len(lat)
q = lambda p: lat[min(n - 1, int(n * p))] / 1e6 if n else 0
print(got, w, nreads, q(0.5), q(0.9), q(0.99), flush=True)
