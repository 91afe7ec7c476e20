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

from tests.faults.pair import EDGE, NODE, Pair, Side


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
