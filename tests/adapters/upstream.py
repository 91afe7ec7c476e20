"""A model backend on loopback that does exactly what a test says, good manners or bad, byte for byte."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.protocol import Factory, Protocol


class Call(Protocol):
    """One connection. Requests are kept as (request line, headers, body); answers are sent by the test."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.open = True
        self.closed_at: float | None = None      # on the reactor's clock, when the server saw it
        self._data = b""

    def connectionMade(self) -> None:
        if not self.upstream.reads:
            self.transport.pauseProducing()

    def dataReceived(self, data: bytes) -> None:
        self._data += data
        while b"\r\n\r\n" in self._data:
            head, rest = self._data.split(b"\r\n\r\n", 1)
            lines = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
            length = int(headers.get("content-length", 0))
            if len(rest) < length:
                return
            self._data = rest[length:]
            self.upstream.received(self, lines[0], headers, rest[:length])

    def connectionLost(self, reason: Any = None) -> None:
        self.open = False
        self.closed_at = reactor.seconds()

    # answers

    def send(self, data: bytes) -> None:
        self.transport.write(data)

    def head(self, status: str = "200 OK", **headers: str) -> None:
        lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
        self.send("\r\n".join(lines).encode() + b"\r\n\r\n")

    def stream_head(self, content_type: str = "text/event-stream") -> None:
        self.head(Content_Type=content_type, Transfer_Encoding="chunked")

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def event(self, value: Any) -> None:
        self.chunk(b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n")

    def words(self, *words: str) -> None:
        for word in words:
            self.event(delta(word))

    def end(self) -> None:
        self.event(delta(finish="stop"))
        self.event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}})
        self.event(b"[DONE]")
        self.send(b"0\r\n\r\n")

    def whole(self, body: bytes, status: str = "200 OK", content_type: str = "application/json", **headers: str) -> None:
        self.head(status, Content_Type=content_type, Content_Length=str(len(body)), **headers)
        self.send(body)

    def close(self) -> None:
        self.transport.loseConnection()

    def reset(self) -> None:
        self.transport.abortConnection()


def delta(text: str | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    content = {} if text is None else {"content": text}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": content | more, "finish_reason": finish}]}


class Upstream(Factory):
    """Listens on a free port of loopback."""

    noisy = False

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.reads = True                        # False: connections are taken, but nothing is read from them
        self._connections: list[Call] = []
        self._port = reactor.listenTCP(0, self, interface="127.0.0.1")
        self.url = f"http://127.0.0.1:{self._port.getHost().port}/v1"

    def buildProtocol(self, addr: Any) -> Call:
        self._connections.append(Call(self))
        return self._connections[-1]

    def received(self, call: Call, line: str, headers: dict[str, str], body: bytes) -> None:
        self.calls.append(call)
        self.requests.append((line, headers, body))

    @property
    def connections(self) -> int:
        return len(self._connections)

    @property
    def last(self) -> Call:
        """The newest connection, whether it has asked anything or not."""
        return self._connections[-1]

    def stop(self) -> Deferred[Any]:
        for connection in self._connections:
            if connection.open:
                connection.transport.abortConnection()
        return maybeDeferred(self._port.stopListening)
