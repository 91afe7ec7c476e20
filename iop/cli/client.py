"""The management API over the standard library's HTTP client: JSON calls and Server-Sent Events. No reactor."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlencode, urlsplit

from iop.cli.errors import ApiError, EdgeGone, NoEdge
from iop.errors import InvalidRequest

CONNECT_S = 5.0
ANSWER_S = 60.0          # a call; also the silence of a stream, which has a heartbeat every 15 s
RETRY_FOR_S = 60.0       # a stream that broke is taken up again for this long: an edge that is started again needs less


class SentEvent(NamedTuple):
    """One event of a stream."""

    id: str
    data: dict[str, Any]


class Client:
    """One edge, as one key may use it."""

    def __init__(self, url: str, key: str, *, ca_file: str = "", sleep: Callable[[float], None] = time.sleep) -> None:
        parts = _address(url)
        if parts is None:
            raise InvalidRequest(f"{url!r} is not the address of an edge; it looks like http://127.0.0.1:7411.")
        path = parts.path.rstrip("/").removesuffix("/v1")     # where model APIs stand; ours begins beside it
        self._parts = parts._replace(path=path, query="", fragment="")
        self.url = self._parts.geturl()
        self._key = key
        self._ca_file = ca_file
        self._sleep = sleep

    def get(self, path: str, **query: object) -> Any:
        return self.call("GET", path, query=query)

    def post(self, path: str, body: object | None = None, *, headers: dict[str, str] | None = None) -> Any:
        return self.call("POST", path, body=body if body is not None else {}, headers=headers)

    def call(self, method: str, path: str, *, query: dict[str, object] | None = None, body: object | None = None,
             headers: dict[str, str] | None = None, answer_s: float = ANSWER_S) -> Any:
        """One call; returns the JSON of the answer. Raises ApiError, NoEdge or EdgeGone."""
        connection = self._connect()
        connection.sock.settimeout(answer_s)
        try:
            answer = self._request(connection, method, _target(path, query), body, headers or {})
            data = answer.read()
        except http.client.RemoteDisconnected:
            raise EdgeGone(f"The edge at {self.url} hung up without an answer.",
                           hint="If it speaks TLS, its address begins with https://.") from None
        except http.client.BadStatusLine:
            raise NoEdge(f"What answers at {self.url} does not speak HTTP.", hint="Is that the edge's HTTP port?") from None
        except (OSError, http.client.HTTPException) as error:
            raise EdgeGone(f"The edge at {self.url} broke off its answer: {error}.") from None
        finally:
            connection.close()
        return _json(data, answer.status)

    def events(self, path: str, after: str = "", *, is_last: Callable[[dict[str, Any]], bool] = lambda data: False,
               is_over: Callable[[str], bool] = lambda after: False) -> Iterator[SentEvent]:
        """The events of a stream behind `after`, through the one that `is_last`.

        A stream that breaks is taken up again behind the last event seen: each event comes once. http.client cannot tell a
        stream that was cut from one that ended, so one that ends without its last event asks `is_over(after)`.
        """
        deadline = 0.0
        while True:
            why = "the stream was cut"
            try:
                for event in self._stream(path, after):
                    after, deadline = event.id or after, 0.0
                    yield event
                    if is_last(event.data):
                        return
                if is_over(after):
                    return
            except (OSError, http.client.HTTPException, NoEdge, EdgeGone) as error:
                if isinstance(error, NoEdge) and not after:
                    raise
                why = str(error).rstrip(".") or type(error).__name__
            deadline = deadline or time.monotonic() + RETRY_FOR_S
            if time.monotonic() >= deadline:
                raise EdgeGone(f"The edge at {self.url} does not answer any more: {why}.",
                               hint=f"What has been shown ends at event {after or '0.0'}; go on with `--after`.")
            self._sleep(0.5)

    def _stream(self, path: str, after: str) -> Iterator[SentEvent]:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": after} if after else {})
        connection = self._connect()
        try:
            answer = self._request(connection, "GET", path, None, headers)
            if answer.status != 200:
                _json(answer.read(), answer.status)
                raise EdgeGone(f"The edge answered a stream with status {answer.status}.")
            yield from parse_events(iter(answer.readline, b""))
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        secure = self._parts.scheme == "https"
        host, port = self._parts.hostname or "", self._parts.port or (443 if secure else 80)
        connection = http.client.HTTPConnection(host, port, timeout=CONNECT_S)
        try:
            connection.connect()
        except OSError as error:
            raise NoEdge(f"No edge answers at {self.url}: {error.strerror or error}.") from None
        if secure:
            connection.sock = self._secured(connection.sock, host)
        connection.sock.settimeout(ANSWER_S)
        with suppress(OSError):
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _secured(self, sock: socket.socket, host: str) -> ssl.SSLSocket:
        try:
            context = ssl.create_default_context(cafile=self._ca_file or None)
        except OSError as error:
            raise NoEdge(f"The CA certificate {self._ca_file} cannot be read: {error.strerror or error}.",
                         hint="IOP_CA names the edge's ca.pem.") from None
        try:
            return context.wrap_socket(sock, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            sock.close()
            raise NoEdge(f"The edge at {self.url} did not prove who it is: {error.verify_message}.",
                         hint="Name its CA certificate with IOP_CA.") from None
        except OSError:
            sock.close()
            raise NoEdge(f"What answers at {self.url} does not speak TLS.",
                         hint="Does the edge's address begin with http://?") from None

    def _request(self, connection: http.client.HTTPConnection, method: str, target: str, body: object | None,
                 headers: dict[str, str]) -> http.client.HTTPResponse:
        headers = ({"Authorization": f"Bearer {self._key}"} if self._key else {}) | {"Accept": "application/json"} | headers
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        connection.request(method, self._parts.path + target, data, headers)
        return connection.getresponse()


def parse_events(lines: Iterator[bytes]) -> Iterator[SentEvent]:
    """Server-Sent Events (the WHATWG's HTML standard, 9.2.6) out of lines; heartbeats and half an event are skipped."""
    event_id, data = "", []
    for line in lines:
        text = line.rstrip(b"\r\n").decode("utf-8", "replace")
        if not text:
            if data:
                yield SentEvent(event_id, json.loads("\n".join(data)))
            event_id, data = "", []
            continue
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "id":
            event_id = value


def _address(url: str) -> SplitResult | None:
    """The parts of an edge's address; None when it is none."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if good else None


def _target(path: str, query: dict[str, object] | None) -> str:
    asked = {name: value for name, value in (query or {}).items() if value not in (None, "")}
    return path + ("?" + urlencode(asked) if asked else "")


def _json(data: bytes, status: int) -> Any:
    try:
        value = json.loads(data) if data else {}
    except ValueError:
        raise ApiError(status, {"message": f"Something that is not IOP answered with status {status}."}) from None
    if status >= 400:
        error = value.get("error") if isinstance(value, dict) else None
        raise ApiError(status, error if isinstance(error, dict) else {})
    return value
