"""The management API as a reader of its own sees it: HTTP/1.1 on asyncio streams, nothing of the product in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

ANSWER_S = 8.0
BROKEN = (OSError, EOFError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ValueError)


class Refused(Exception):
    """A typed error of the API."""

    def __init__(self, status: int, code: str, message: str, retryable: bool) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.retryable = retryable


class Client:
    """One edge, with one key."""

    def __init__(self, port: int, key: str) -> None:
        self.port = port
        self._key = key

    async def call(self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None,
                   seconds: float = ANSWER_S) -> Any:
        """The JSON of the answer. Raises Refused, or one of BROKEN."""
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                status, length = await self._ask(reader, writer, method, path, body, headers or {})
                data = await (reader.readexactly(length) if length >= 0 else self._all_chunks(reader))
            finally:
                writer.close()
        return told(status, data)

    async def stream(self, path: str, after: str, seconds: float) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """(id, event) of a stream behind `after`, until it ends or nothing comes for so long; raises one of BROKEN."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": after} if after else {})
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            async with asyncio.timeout(seconds):
                status, length = await self._ask(reader, writer, "GET", path, None, headers)
            if status != 200:
                told(status, await reader.readexactly(max(0, length)))
            left = b""
            while True:
                async with asyncio.timeout(seconds):
                    chunk = await self._chunk(reader)
                if not chunk:
                    return
                *frames, left = (left + chunk).split(b"\n\n")
                for frame in frames:
                    event = parsed(frame)
                    if event is not None:
                        yield event
        finally:
            writer.close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: str, path: str, body: object,
                   headers: dict[str, str]) -> tuple[int, int]:
        """Send a request; returns (status, length of the body, or -1 when it comes in chunks)."""
        data = b"" if body is None else json.dumps(body).encode()
        head = {"Host": "127.0.0.1", "Authorization": f"Bearer {self._key}", "Accept": "application/json",
                "Content-Length": str(len(data)), "Content-Type": "application/json"} | headers
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        writer.write(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + data)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = -1
        for line in answer.split("\r\n"):
            if line.startswith("content-length:"):
                length = int(line.partition(":")[2])
        return int(answer.split(" ", 2)[1]), length

    async def _chunk(self, reader: asyncio.StreamReader) -> bytes:
        size = int(await reader.readuntil(b"\r\n"), 16)
        data = await reader.readexactly(size + 2)
        return data[:-2]

    async def _all_chunks(self, reader: asyncio.StreamReader) -> bytes:
        found = []
        while chunk := await self._chunk(reader):
            found.append(chunk)
        return b"".join(found)


def told(status: int, data: bytes) -> Any:
    value = json.loads(data) if data else {}
    if status >= 400:
        error = value.get("error") or {}
        raise Refused(status, error.get("code", ""), error.get("message", ""), bool(error.get("retryable")))
    return value


def parsed(frame: bytes) -> tuple[str, dict[str, Any]] | None:
    """One frame of Server-Sent Events; None for a comment."""
    name, data = "", ""
    for line in frame.decode().split("\n"):
        if line.startswith("id: "):
            name = line[4:]
        elif line.startswith("data: "):
            data += line[6:]
    return (name, json.loads(data)) if data else None
