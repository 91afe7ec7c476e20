#!/usr/bin/env python3
"""Tiny fake OpenAI-compatible upstream on 127.0.0.1 (asyncio + uvloop + httptools; one process).

POST /v1/chat/completions  {"model":..., "stream": bool, ...}   GET /v1/models   GET /health
Non-stream: one JSON reply whose content is --content-bytes long, after --latency-ms.
Stream: an SSE reply of a role chunk + N content chunks + a finish chunk + [DONE]; N = `max_tokens` of the request if given,
else --chunks. --gap-ms 0 writes as fast as the peer reads (in groups of --group chunks per write);
--gap-ms G writes one chunk every G ms. Each content chunk's text starts with a CLOCK_MONOTONIC ns stamp ("<ns> "), so a load
generator on the same machine can tell the latency that a gateway adds per chunk.
Keep-alive and HTTP/1.1 chunked transfer. Prints "READY <port>" when listening.
"""

import argparse
import asyncio
import json
import time

import httptools

try:
    import uvloop
except ImportError:
    uvloop = None
ap = argparse.ArgumentParser()
ap.add_argument("--port", type=int, default=0)
ap.add_argument("--chunks", type=int, default=200)
ap.add_argument("--gap-ms", type=float, default=0)
ap.add_argument("--group", type=int, default=1)
ap.add_argument("--latency-ms", type=float, default=0)
ap.add_argument("--content-bytes", type=int, default=700)
A = ap.parse_args()
now = time.monotonic_ns
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
SSEH = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
PRE = '{"id":"chatcmpl-fake0000000000000001","object":"chat.completion.chunk","created":1790000000,"model":"fake-model","choices":[{"index":0,"delta":'


def chunk(delta, fin="null"):
    return ("data: " + PRE + delta + ',"finish_reason":' + fin + "}]}\n\n").encode()


def te(b):
    return b"%x\r\n%b\r\n" % (len(b), b)


ROLE = te(chunk('{"role":"assistant","content":""}'))
FIN = te(chunk("{}", '"stop"')) + te(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def content():
    return te(chunk('{"content":"%d lorem ipsum dolor "}' % now()))


BODY = json.dumps(
    {
        "id": "chatcmpl-fake0000000000000001",
        "object": "chat.completion",
        "created": 1790000000,
        "model": "fake-model",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": ("lorem ipsum " * 1000)[: A.content_bytes]},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 100, "total_tokens": 110},
    }
).encode()
REPLY = HEAD % len(BODY) + BODY
MODELS = json.dumps(
    {"object": "list", "data": [{"id": "fake-model", "object": "model", "created": 1790000000, "owned_by": "fake"}]}
).encode()


class P(asyncio.Protocol):
    def connection_made(self, t):
        self.t = t
        self.p = httptools.HttpRequestParser(self)
        self.body = []
        self.can = asyncio.Event()
        self.can.set()
        self.open = True
        self.url = b""

    def pause_writing(self):
        self.can.clear()

    def resume_writing(self):
        self.can.set()

    def connection_lost(self, e):
        self.open = False
        self.can.set()

    def data_received(self, d):
        try:
            self.p.feed_data(d)
        except httptools.HttpParserError:
            self.t.close()

    def on_url(self, u):
        self.url = u

    def on_header(self, k, v):
        if k.lower() == b"expect":
            self.t.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, b):
        self.body.append(b)

    def on_message_complete(self):
        body = b"".join(self.body)
        self.body = []
        if b"chat/completions" in self.url:
            try:
                q = json.loads(body)
            except ValueError:
                self.t.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
                return
            if q.get("stream"):
                loop.create_task(self.stream(int(q.get("max_tokens") or q.get("max_completion_tokens") or A.chunks)))
            elif A.latency_ms:
                loop.call_later(A.latency_ms / 1000, self.t.write, REPLY)
            else:
                self.t.write(REPLY)
        elif b"models" in self.url:
            self.t.write(HEAD % len(MODELS) + MODELS)
        else:
            self.t.write(HEAD % 2 + b"ok")

    async def stream(self, n):
        w = self.t.write
        if A.latency_ms:
            await asyncio.sleep(A.latency_ms / 1000)
        w(SSEH + ROLE)
        sent = 0
        t0 = time.perf_counter()
        while sent < n and self.open:
            g = min(A.group, n - sent)
            w(content() if g == 1 else b"".join([content() for _ in range(g)]))
            sent += g
            if not self.can.is_set():
                await self.can.wait()
            if A.gap_ms:
                await asyncio.sleep(max(0, t0 + sent * A.gap_ms / 1000 - time.perf_counter()))
            elif sent % 16 < g:
                await asyncio.sleep(0)
        if self.open:
            w(FIN)


loop = uvloop.new_event_loop() if uvloop else asyncio.new_event_loop()


async def main():
    s = await loop.create_server(P, "127.0.0.1", A.port, backlog=2048)
    print("READY", s.sockets[0].getsockname()[1], flush=True)
    await s.serve_forever()


try:
    loop.run_until_complete(main())
except KeyboardInterrupt:
    pass
