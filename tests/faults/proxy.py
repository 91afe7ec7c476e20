"""A TCP proxy on loopback that does to a link what networks do. Standard library only, on asyncio.

One proxy stands between one node and the edge. What it does is told for all of its connections, by name:

========== ======================================================================================================
pass       bytes go through
hold       a black hole: nothing goes through in the directions told; the kernel keeps it, as it would in a real one
delay      everything later, in order
drip       a few bytes at a time
flip       one bit of the next bytes is flipped
truncate   the next bytes are cut short, then both sides are closed
reset      both sides get a reset
close      both sides get an orderly end
half_open  one side gets a reset, the other hears nothing
limbo      the node's side is reset; what it had sent last comes to the edge later, over the old connection
lose       one whole frame (length of four bytes, big-endian) from the node is left out: what no network does
========== ======================================================================================================
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections import deque
from contextlib import suppress

NODE, EDGE = "node", "edge"          # a side, and what comes from there
BOTH = (NODE, EDGE)
DRIP_S = 0.02


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

    def __init__(self, proxy: Proxy) -> None:
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


class Proxy:
    """Listens on one port and dials another. Modes are set by its methods; `heal()` lets everything pass again."""

    def __init__(self, target_port: int, seed: int = 0) -> None:
        self.target_port = target_port
        self.port = 0
        self.pairs: set[Pair] = set()
        self.chance = random.Random(seed)
        self.held: set[str] = set()
        self.delay_s = 0.0
        self.drip_bytes = 0
        self.next_flip = ""
        self.next_cut = ""
        self.framing = False             # connections made from now on are read frame by frame, and can lose some
        self.to_lose = 0
        self.lose_above = 0
        self.lost = 0
        self.mode = "pass"
        self.connections = 0
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> int:
        self._server = await asyncio.get_running_loop().create_server(self._accept, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    def _accept(self) -> Side:
        pair = Pair(self)
        pair.losing = self.framing
        self.pairs.add(pair)
        self.connections += 1
        return pair.node

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for pair in list(self.pairs):
            pair.severed = True
            pair.reset()

    def heal(self) -> None:
        self.mode, self.held = "pass", set()
        self.delay_s, self.drip_bytes, self.next_flip, self.next_cut = 0.0, 0, "", ""
        for pair in list(self.pairs):
            pair.hurry()
            pair.hold(set())

    def hold(self, *directions: str) -> None:
        """Nothing that comes from these sides goes on."""
        self.mode, self.held = "hold", set(directions)
        for pair in list(self.pairs):
            pair.hold(self.held)

    def reset(self) -> None:
        for pair in list(self.pairs):
            pair.severed = True
            pair.reset()

    def close(self) -> None:
        for pair in list(self.pairs):
            for side in pair.sides():
                side.close()

    async def half_open(self, gone: str, seconds: float) -> None:
        """The side `gone` is reset; the other side hears nothing of it for so long."""
        pairs = list(self.pairs)
        for pair in pairs:
            pair.severed = True
            (pair.node if gone == NODE else pair.edge).reset()
        await asyncio.sleep(seconds)
        for pair in pairs:
            pair.reset()

    async def limbo(self, gather_s: float, late_s: float, linger_s: float) -> None:
        """What the node sends in `gather_s` is kept; then its side dies; `late_s` later the bytes come to the edge."""
        pairs = list(self.pairs)
        for pair in pairs:
            pair.hold({EDGE})
        kept: dict[Pair, bytearray] = {pair: bytearray() for pair in pairs}
        for pair in pairs:
            pair.arrived = lambda side, data, box=kept[pair], pair=pair: (  # type: ignore[method-assign]
                box.extend(data) if side is pair.node else None)
        await asyncio.sleep(gather_s)
        for pair in pairs:
            pair.severed = True
            pair.node.reset()
        await asyncio.sleep(late_s)
        for pair in pairs:
            pair.edge.write(bytes(kept[pair]))
        await asyncio.sleep(linger_s)
        for pair in pairs:
            pair.reset()
