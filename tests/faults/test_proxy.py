"""What the proxy does to bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from tests.faults.pair import EDGE, NODE
from tests.faults.proxy import Proxy


class Edge:
    """A server that keeps what it is sent, and what became of its connections."""

    def __init__(self) -> None:
        self.received: list[bytearray] = []
        self.ends: list[str] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def start(self) -> int:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        box = bytearray()
        self.received.append(box)
        self.writers.append(writer)
        try:
            while data := await reader.read(4096):
                box += data
            self.ends.append("closed")
        except ConnectionResetError:
            self.ends.append("reset")
        writer.close()


def play(script: Callable[[Proxy, Edge, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
    async def run() -> None:
        edge = Edge()
        proxy = Proxy(await edge.start(), seed=1)
        reader, writer = await asyncio.open_connection("127.0.0.1", await proxy.start())
        async with asyncio.timeout(20):
            await script(proxy, edge, reader, writer)
        proxy.stop()
        with suppress(OSError):
            writer.close()

    asyncio.run(run())


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110  # play() has the deadline
        await asyncio.sleep(0.01)


def test_bytes_go_through_in_both_directions():
    async def script(proxy, edge, reader, writer):
        writer.write(b"up")
        await until(lambda: edge.received and edge.received[0] == b"up")
        edge.writers[0].write(b"down")
        assert await reader.readexactly(4) == b"down"
    play(script)


def test_a_black_hole_keeps_what_is_sent_and_lets_it_through_when_healed():
    async def script(proxy, edge, reader, writer):
        writer.write(b"before ")
        await until(lambda: edge.received and edge.received[0])
        proxy.hold(NODE, EDGE)
        writer.write(b"after")
        await asyncio.sleep(0.1)
        assert edge.received[0] == b"before "
        proxy.heal()
        await until(lambda: edge.received[0] == b"before after")
    play(script)


def test_one_way_holds_one_direction():
    async def script(proxy, edge, reader, writer):
        writer.write(b"x")
        await until(lambda: edge.received and edge.received[0])
        proxy.hold(NODE)
        edge.writers[0].write(b"down")
        writer.write(b"up")
        assert await reader.readexactly(4) == b"down" and edge.received[0] == b"x"
    play(script)


def test_a_flip_changes_one_bit():
    async def script(proxy, edge, reader, writer):
        proxy.next_flip = NODE
        writer.write(bytes(100))
        await until(lambda: edge.received and len(edge.received[0]) == 100)
        assert sum(byte.bit_count() for byte in edge.received[0]) == 1
    play(script)


def test_truncated_bytes_are_followed_by_the_end():
    async def script(proxy, edge, reader, writer):
        proxy.next_cut = NODE
        writer.write(bytes(100))
        await until(lambda: edge.ends)
        assert 0 < len(edge.received[0]) < 100 and edge.ends == ["closed"]
        assert await reader.read() == b""
    play(script)


def test_a_reset_comes_to_both_sides():
    async def script(proxy, edge, reader, writer):
        writer.write(b"x")
        await until(lambda: edge.received and edge.received[0])
        proxy.reset()
        await until(lambda: edge.ends)
        assert edge.ends == ["reset"]
        with suppress(ConnectionResetError):
            assert await reader.read() == b"" and False, "an orderly end"
    play(script)


def test_half_open_tells_one_side_only():
    async def script(proxy, edge, reader, writer):
        writer.write(b"x")
        await until(lambda: edge.received and edge.received[0])
        ended = asyncio.ensure_future(proxy.half_open(NODE, 0.3))
        with suppress(ConnectionResetError):
            await reader.read()
        assert edge.ends == []
        await ended
        await until(lambda: edge.ends)
    play(script)


def test_limbo_brings_the_last_bytes_after_the_node_s_side_has_died():
    async def script(proxy, edge, reader, writer):
        writer.write(b"x")
        await until(lambda: edge.received and edge.received[0])
        limbo = asyncio.ensure_future(proxy.limbo(0.2, 0.3, 0.1))
        await asyncio.sleep(0.05)
        writer.write(b" last words")
        with suppress(ConnectionResetError):
            await reader.read()
        assert edge.received[0] == b"x"
        await until(lambda: edge.received[0] == b"x last words")
        await limbo
    play(script)


def test_slow_bytes_come_late_and_in_order():
    async def script(proxy, edge, reader, writer):
        writer.write(b"x")
        await until(lambda: edge.received and edge.received[0])
        proxy.drip_bytes = 10
        writer.write(bytes(range(50)))
        await asyncio.sleep(0.03)
        assert len(edge.received[0]) < 51
        proxy.drip_bytes = 0
        writer.write(b"end")
        await until(lambda: edge.received[0] == b"x" + bytes(range(50)) + b"end")
    play(script)


def test_a_frame_is_lost_whole():
    async def script(proxy, edge, reader, writer):
        writer.close()
        proxy.framing, proxy.lose_above, proxy.to_lose = True, 10, 1
        _, second = await asyncio.open_connection("127.0.0.1", proxy.port)
        frames = [len(text).to_bytes(4, "big") + text for text in (b"ping", bytes(100), b"another", bytes(50))]
        second.write(b"".join(frames))
        await until(lambda: len(edge.received) == 2 and bytes(edge.received[1]) == frames[0] + frames[2] + frames[3])
        assert proxy.lost == 1
        second.close()
    play(script)
