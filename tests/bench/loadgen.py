#!/usr/bin/env python3
"""Load generator for OpenAI-compatible chat completions: closed loop (C connections, keep-alive) or open loop (--rate), streaming or not.

Reports one JSON object: requests, errors (by kind), RPS, latency p50/p90/p99 (whole reply), and when streaming TTFT p50/p99
(request sent -> first content chunk), inter-chunk gap p50/p99, added chunk latency p50/p99 (if chunks carry the fake upstream's
monotonic stamp), chunks/s, the total chunk count against the expected one; the CPU seconds and the peak RSS of --pids.
It is bounded: ends after --requests, or --duration seconds, whichever first. Targets loopback only.
"""

import argparse
import asyncio
import json
import os
import re
import time

import httptools

try:
    import uvloop
except ImportError:
    uvloop = None
ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("--port", type=int, required=True)
ap.add_argument("--path", default="/v1/chat/completions")
ap.add_argument("-c", "--concurrency", type=int, default=16)
ap.add_argument("-n", "--requests", type=int, default=1000)
ap.add_argument("-d", "--duration", type=float, default=60, help="stop starting requests after this many seconds")
ap.add_argument("--timeout", type=float, default=60, help="a request with no byte for this long is an error")
ap.add_argument("--rate", type=float, default=0, help="open loop: requests/s over the -c connections (0: closed loop)")
ap.add_argument("--stream", action="store_true")
ap.add_argument(
    "--chunks", type=int, default=200, help="content chunks asked for (max_tokens) and expected per streamed reply"
)
ap.add_argument("--model", default="fake-model")
ap.add_argument("--key", default="sk-test")
ap.add_argument("--header", action="append", default=[], help='extra header "Name: value"')
ap.add_argument("--body-bytes", type=int, default=1024, help="about this large a request body")
ap.add_argument("--warmup", type=int, default=0, help="requests not counted at the start")
ap.add_argument("--pids", default="", help="comma list of pids (with their children) whose CPU and RSS to report")
ap.add_argument("--label", default="")
A = ap.parse_args()


def tree(pids):
    kids = {}
    for p in os.listdir("/proc"):
        if p.isdigit():
            try:
                f = open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()
                kids.setdefault(int(f[1]), []).append(int(p))
            except (OSError, IndexError):
                pass
    out = []
    todo = list(pids)
    while todo:
        x = todo.pop()
        out.append(x)
        todo += kids.get(x, [])
    return out


def usage(pids):
    cpu = 0.0
    rss = 0
    for p in tree(pids):
        try:
            f = open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()
            cpu += time.clock_gettime_ns((~p << 3) | 2) / 1e9  # its own clock: /proc counts in ticks of 10 ms
            rss += int(open(f"/proc/{p}/statm").read().split()[1]) * 4096
        except OSError:
            pass
    return cpu, rss


PIDS = [int(x) for x in A.pids.split(",") if x]
msg = {"model": A.model, "messages": [{"role": "user", "content": ""}]}
if A.stream:
    msg["stream"] = True
    msg["max_tokens"] = A.chunks
msg["messages"][0]["content"] = "x" * max(1, A.body_bytes - len(json.dumps(msg)))
B = json.dumps(msg).encode()
REQ = (
    f"POST {A.path} HTTP/1.1\r\nHost: 127.0.0.1:{A.port}\r\nContent-Type: application/json\r\nAccept: */*\r\nAuthorization: Bearer {A.key}\r\n"
    + "".join(h + "\r\n" for h in A.header)
    + f"Content-Length: {len(B)}\r\n\r\n"
).encode() + B
now = time.perf_counter
mono = time.monotonic_ns
STAMP = re.compile(rb'"content": ?"(\d{6,}) ')
CONTENT = re.compile(rb'"content": ?"[^"]')
lat, ttft, gaps, added = [], [], [], []
S = dict(started=0, done=0, chunks=0, done_marks=0, bytes=0)
errors = {}
sample = []


def err(kind):
    errors[kind] = errors.get(kind, 0) + 1


class C(asyncio.Protocol):
    def connection_made(self, t):
        self.t = t
        self.new()
        self.fut = None
        self.last_byte = now()

    def new(self):
        self.p = httptools.HttpResponseParser(self)
        self.tail = b""

    def start(self):
        self.fut = loop.create_future()
        self.t0 = now()
        self.first = 0.0
        self.last = 0.0
        self.n = 0
        self.fin = False
        self.body = []
        self.last_byte = self.t0
        self.t.write(REQ)
        return self.fut

    def data_received(self, d):
        self.last_byte = now()
        try:
            self.p.feed_data(d)
        except httptools.HttpParserError:
            self.end("parse")

    def on_body(self, b):
        S["bytes"] += len(b)
        if not A.stream or self.p.get_status_code() != 200:
            self.body.append(b)
            return
        d = self.tail + b if self.tail else b
        i = d.rfind(b"\n\n")
        if i < 0:
            self.tail = d
            return
        self.tail = d[i + 2 :]
        d = d[: i + 2]
        t = self.last_byte
        ns = mono()
        k = len(CONTENT.findall(d))
        if k:
            if not self.first:
                self.first = t
                ttft.append(t - self.t0)
            else:
                gaps.append(t - self.last)
            self.last = t
            self.n += k
            for x in STAMP.findall(d):
                added.append(ns - int(x))
        if b"data: [DONE]" in d:
            self.fin = True

    def on_message_complete(self):
        st = self.p.get_status_code()
        if st != 200:
            err(f"http_{st}")
            if not sample:
                sample.append(b"".join(self.body)[:300].decode("utf8", "replace"))
        elif A.stream:
            S["chunks"] += self.n
            if self.n != A.chunks:
                err("chunk_count")
            if not self.fin:
                err("no_done")
        elif b'"choices"' not in b"".join(self.body):
            err("bad_body")
        lat.append(now() - self.t0)
        S["done"] += 1
        keep = self.p.should_keep_alive()
        self.new()
        if not keep:
            self.t.close()
        self.end(None)

    def end(self, e):
        if e:
            err(e)
            self.t.abort()
        if self.fut and not self.fut.done():
            self.fut.set_result(e)

    def connection_lost(self, e):
        if self.fut and not self.fut.done():
            err("disconnect")
            self.fut.set_result("disconnect")
        self.fut = None
        self.t = None


async def worker(stop_at):
    c = None
    while S["started"] < LIMIT and now() < stop_at:
        S["started"] += 1
        i = S["started"]
        if A.rate:
            due = T0[0] + i / A.rate
            if due > now():
                await asyncio.sleep(due - now())
        if c is None or c.t is None or c.t.is_closing():
            try:
                _, c = await loop.create_connection(C, "127.0.0.1", A.port)
            except OSError:
                err("connect")
                await asyncio.sleep(0.05)
                continue
        f = c.start()
        while True:
            done, _ = await asyncio.wait([f], timeout=A.timeout)
            if done:
                break
            if now() - c.last_byte > A.timeout:
                c.end("timeout")
    if c and c.t:
        c.t.close()


LIMIT = 0
T0 = [0]


def clear():
    for x in (lat, ttft, gaps, added):
        x.clear()
    for k in S:
        S[k] = 0
    errors.clear()


async def main():
    global LIMIT
    if A.warmup:
        LIMIT = A.warmup
        T0[0] = now()
        await asyncio.gather(*[worker(now() + A.duration) for _ in range(min(A.concurrency, A.warmup))])
        clear()
    LIMIT = A.requests
    c0, _ = usage(PIDS)
    me = time.process_time()
    T0[0] = now()
    await asyncio.gather(*[worker(T0[0] + A.duration) for _ in range(A.concurrency)])
    w = now() - T0[0]
    c1, rss = usage(PIDS)
    me = time.process_time() - me

    def q(x, p, k=1e3, nd=3):
        if not x:
            return None
        x = sorted(x)
        return round(x[min(len(x) - 1, int(len(x) * p))] * k, nd)

    r = dict(
        label=A.label,
        stream=A.stream,
        concurrency=A.concurrency,
        requests=S["done"],
        errors=errors,
        wall_s=round(w, 3),
        rps=round(S["done"] / w, 1),
        lat_ms_p50=q(lat, 0.5),
        lat_ms_p90=q(lat, 0.9),
        lat_ms_p99=q(lat, 0.99),
    )
    if A.stream:
        r.update(
            ttft_ms_p50=q(ttft, 0.5),
            ttft_ms_p99=q(ttft, 0.99),
            gap_ms_p50=q(gaps, 0.5),
            gap_ms_p99=q(gaps, 0.99),
            added_ms_p50=q(added, 0.5, 1e-6),
            added_ms_p99=q(added, 0.99, 1e-6),
            chunks=S["chunks"],
            chunks_expected=S["done"] * A.chunks,
            chunks_ok=S["chunks"] == S["done"] * A.chunks,
            chunks_per_s=round(S["chunks"] / w),
        )
    if PIDS:
        r.update(
            server_cpu_s=round(c1 - c0, 2),
            server_cpu_ms_per_req=round(1e3 * (c1 - c0) / max(1, S["done"]), 3),
            server_rss_mb=round(rss / 1e6, 1),
        )
    if A.stream and PIDS:
        r["server_cpu_us_per_chunk"] = round(1e6 * (c1 - c0) / max(1, S["chunks"]), 1)
    r["loadgen_cpu_s"] = round(me, 2)
    if sample:
        r["error_sample"] = sample[0]
    print(json.dumps(r))


loop = uvloop.new_event_loop() if uvloop else asyncio.new_event_loop()
loop.run_until_complete(main())
