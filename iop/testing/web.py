"""A client of a web site over a memory transport: raw bytes in, parsed answers out. Time is the site's clock."""

from __future__ import annotations

import http.client
import io
import json
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from iop.web.site import Site


class _Transport(StringTransport):
    """Knows besides that a TCP connection can be closed on one side, and what was aborted."""

    half_closed = False
    aborted = False

    def loseWriteConnection(self) -> None:
        self.half_closed = True

    def abortConnection(self) -> None:
        self.aborted = self.disconnecting = True


class Answer:
    """One parsed answer."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error, in either dialect."""
        return self.json["error"]["code"]


class _Stream(io.BytesIO):
    """Goes on after the answer was read, as a connection does."""

    def close(self) -> None:
        pass


class _Socket:
    def __init__(self, stream: io.BytesIO) -> None:
        self._stream = stream

    def makefile(self, mode: str) -> io.BytesIO:
        return self._stream


class Wire:
    """One connection."""

    def __init__(self, site: Site, key: str = "", host: str = "127.0.0.1:7411") -> None:
        self.key = key
        self.host = host
        self.transport = _Transport(hostAddress=IPv4Address("TCP", "127.0.0.1", 7411),
                                    peerAddress=IPv4Address("TCP", "127.0.0.1", 50000))
        self.channel = site.buildProtocol(None)
        self.channel.makeConnection(self.transport)

    def send(self, data: bytes) -> None:
        self.channel.dataReceived(data)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> None:
        """Send a request; `body` is JSON, or bytes as they are. Header names have _ for -."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}"]
        if self.key:
            lines.append(f"Authorization: Bearer {self.key}")
        if body is not None:
            lines += [f"Content-Length: {len(data)}", "Content-Type: application/json"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + data)

    def answer(self) -> Answer:
        """The next whole answer; fails when there is none."""
        stream = _Stream(self.transport.value())
        response = http.client.HTTPResponse(_Socket(stream))  # type: ignore[arg-type]
        response.begin()
        answer = Answer(response)
        rest = stream.read()
        self.transport.clear()
        if rest:
            self.transport.io.write(rest)
        return answer

    def call(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        self.ask(method, path, body, **headers)
        return self.answer()

    @property
    def received(self) -> bytes:
        """What was written and not parsed yet."""
        return self.transport.value()

    def streamed(self) -> bytes:
        """The body of a stream so far, out of its chunks; what was there before is gone."""
        data = self.received
        self.transport.clear()
        _, separator, rest = data.partition(b"\r\n\r\n") if data.startswith(b"HTTP/") else (b"", b"\r\n\r\n", data)
        out = []
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            out.append(rest[:int(size, 16)])
            rest = rest[int(size, 16) + 2:]
        return b"".join(out)

    def leave(self) -> None:
        """The client closes the connection."""
        self.channel.connectionLost(Failure(ConnectionDone()))

    @property
    def closed(self) -> bool:
        return self.transport.disconnecting or self.transport.half_closed
