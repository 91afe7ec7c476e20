"""A model server that tells when it saw each request come and each client go: `came TAG NS`, `gone TAG NS` on stdout.

`user` of a chat is its tag. A prompt of "prefill" is never answered, any other with a chunk every 20 ms for ever; NS is
CLOCK_MONOTONIC, so that another process of this machine can compare. `--sleep`: it never listens, a server that loads.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
MODELS = b'{"object":"list","data":[{"id":"m","object":"model","created":0,"owned_by":"bench"}]}'
GAP_S = 0.02


def chunk(text: str) -> bytes:
    value = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m",
             "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    data = b"data: " + json.dumps(value).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


WORD = chunk("word ")


def tell(what: str, tag: str) -> None:
    print(what, tag, time.monotonic_ns(), flush=True)


class Conversation(asyncio.Protocol):
    """One connection: chats one after another, the last of which never ends."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.data = b""
        self.tag = ""
        self.going: asyncio.TimerHandle | None = None

    def connection_lost(self, reason: Exception | None) -> None:
        if self.going:
            self.going.cancel()
        if self.tag:
            tell("gone", self.tag)

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, found, body = self.data.partition(b"\r\n\r\n")
        if not found:
            return
        length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
        if len(body) < length:
            return
        self.data = body[length:]
        if head.startswith(b"GET"):
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
                len(MODELS), MODELS))
            return
        chat = json.loads(body[:length])
        self.tag = str(chat.get("user", ""))
        tell("came", self.tag)
        if chat["messages"][-1]["content"] != "prefill":
            self.transport.write(HEAD)
            self.write()

    def write(self) -> None:
        self.transport.write(WORD)
        self.going = asyncio.get_running_loop().call_later(GAP_S, self.write)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Conversation, "127.0.0.1", 0, backlog=1024)
    print("port", server.sockets[0].getsockname()[1], 0, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    if "--sleep" in sys.argv:
        time.sleep(1e6)
    asyncio.run(main())
