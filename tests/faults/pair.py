"""One connection through the proxy: two sides, and what becomes of the bytes between them."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections import deque
from contextlib import suppress
from typing import Protocol

NODE, EDGE = "node", "edge"          # a side, and what comes from there
DRIP_S = 0.02


class Modes(Protocol):
    """What the proxy does now to all of its connections."""

    target_port: int
    pairs: set[Pair]
    chance: random.Random
    held: set[str]
    delay_s: float
    drip_bytes: int
    next_flip: str
    next_cut: str
    to_lose: int
    lose_above: int
    lost: int


class Side(asyncio.Protocol):
    """One end of a connection through the proxy."""

    def __init__(self, name: str, pair: Pair) -> None:
        self.name = name
        self.pair = pair
        self.transport: asyncio.Transport | None = None
        self.waiting = bytearray()       # before this side is connected

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.pair.connected(self)

    def data_received(self, data: bytes) -> None:
        self.pair.arrived(self, data)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self.pair.lost(self)

    def pause_writing(self) -> None:
        self.pair.hold_back(self, True)

    def resume_writing(self) -> None:
        self.pair.hold_back(self, False)

    def write(self, data: bytes) -> None:
        if self.transport is None:
            self.waiting += data
        elif not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def reset(self) -> None:
        """A reset instead of an orderly end: SO_LINGER with 0 seconds (socket(7))."""
        if self.transport is not None:
            wire = self.transport.get_extra_info("socket")
            with suppress(OSError):
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()


class Pair:
    """One connection of a node, and ours to the edge."""

    def __init__(self, proxy: Modes) -> None:
        self.proxy = proxy
        self.node = Side(NODE, self)
        self.edge = Side(EDGE, self)
        self.severed = False             # what one side does is not told to the other any more
        self._held: set[str] = set()     # directions that stand still
        self._full: set[str] = set()     # directions whose receiver takes nothing
        self._late: deque[tuple[float, str, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._frame = bytearray()        # while a frame is to be lost
        self.losing = False

    def sides(self) -> tuple[Side, Side]:
        return self.node, self.edge

    def other(self, side: Side) -> Side:
        return self.edge if side is self.node else self.node

    def connected(self, side: Side) -> None:
        if side is self.node:
            self._held |= self.proxy.held
            self._stand(side)
            asyncio.get_running_loop().create_task(self._dial())
        else:
            if side.waiting:
                side.write(bytes(side.waiting))
            self._stand(side)
            if self.node.transport is None or self.node.transport.is_closing():      # it did not wait for us
                side.close()

    async def _dial(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.edge, "127.0.0.1", self.proxy.target_port)
        except OSError:
            self.node.close()

    # --- bytes

    def arrived(self, side: Side, data: bytes) -> None:
        proxy = self.proxy
        other = self.other(side)
        if self.losing and side is self.node:
            data = self._lose(data)
        elif proxy.next_flip == side.name:
            proxy.next_flip = ""
            place = proxy.chance.randrange(len(data))
            data = data[:place] + bytes([data[place] ^ 1 << proxy.chance.randrange(8)]) + data[place + 1:]
        elif proxy.next_cut == side.name and len(data) > 1:
            proxy.next_cut = ""
            other.write(data[:proxy.chance.randrange(1, len(data))])
            other.close()
            side.close()
            return
        if not data:
            return
        if proxy.delay_s or proxy.drip_bytes or self._late:
            self._later(side.name, data)
        else:
            other.write(data)

    def _lose(self, data: bytes) -> bytes:
        """Leave out the next large frame: small ones are pings and answers. Framing is known from the start only, so this
        is switched on before the connection is made."""
        self._frame += data
        passed = bytearray()
        while len(self._frame) >= 4:
            size = 4 + int.from_bytes(self._frame[:4], "big")
            if len(self._frame) < size:
                break
            frame, self._frame = bytes(self._frame[:size]), self._frame[size:]
            if self.proxy.to_lose and size > self.proxy.lose_above:
                self.proxy.to_lose -= 1
                self.proxy.lost += 1
            else:
                passed += frame
        return bytes(passed)

    def _later(self, name: str, data: bytes) -> None:
        now, proxy = asyncio.get_running_loop().time(), self.proxy
        if proxy.drip_bytes:
            last = self._late[-1][0] if self._late else now
            for at in range(0, len(data), proxy.drip_bytes):
                last += DRIP_S
                self._late.append((last, name, data[at:at + proxy.drip_bytes]))
        else:
            self._late.append((now + proxy.delay_s, name, data))
        self._arm()

    def _arm(self) -> None:
        if self._timer is None and self._late:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._late[0][0], self._due)

    def _due(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._late and self._late[0][0] <= now + 0.001:
            self._pass_late()
        self._arm()

    def _pass_late(self) -> None:
        _, name, data = self._late.popleft()
        (self.edge if name == NODE else self.node).write(data)

    def hurry(self) -> None:
        """All that waits goes through now."""
        while self._late:
            self._pass_late()

    # --- standing still

    def hold(self, directions: set[str]) -> None:
        self._held = set(directions)
        for side in self.sides():
            self._stand(side)

    def hold_back(self, receiver: Side, full: bool) -> None:
        source = self.other(receiver)
        (self._full.add if full else self._full.discard)(source.name)
        self._stand(source)

    def _stand(self, side: Side) -> None:
        if side.transport is None or side.transport.is_closing():
            return
        if side.name in self._held or side.name in self._full:
            side.transport.pause_reading()
        else:
            side.transport.resume_reading()

    # --- ends

    def lost(self, side: Side) -> None:
        if not self.severed:
            other = self.other(side)
            if side.name in self._late_names():
                self.hurry()
            other.close()
        if self.node.transport is None and self.edge.transport is None:
            self.proxy.pairs.discard(self)

    def _late_names(self) -> set[str]:
        return {name for _, name, _ in self._late}

    def reset(self) -> None:
        for side in self.sides():
            side.reset()
