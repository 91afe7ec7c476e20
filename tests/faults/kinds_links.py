"""The kinds of faults of a link; each on one proxy that does nothing else at that time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tests.faults.kind import POINT_S, NothingThere, kind
from tests.faults.pair import EDGE, NODE
from tests.faults.proxy import Proxy
from tests.faults.world import World


def a_proxy(world: World, name: str) -> Proxy:
    """One that does nothing else now and has a connection."""
    free = [proxy for proxy in world.proxies if proxy.mode == "pass" and proxy.pairs]
    if not free:
        raise NothingThere("no link is up")
    proxy = world.chance.choice(free)
    proxy.mode = name
    return proxy


@kind("reset")
async def reset(world: World) -> str:
    proxy = a_proxy(world, "reset")
    proxy.reset()
    proxy.heal()
    return str(proxy.port)


@kind("close")
async def close(world: World) -> str:
    proxy = a_proxy(world, "close")
    proxy.close()
    proxy.heal()
    return str(proxy.port)


@kind("half-open")
async def half_open(world: World) -> str:
    proxy, gone = a_proxy(world, "half_open"), world.chance.choice((NODE, EDGE))
    await proxy.half_open(gone, world.chance.uniform(0.5, 4.0))
    proxy.heal()
    return f"{gone} gone"


@kind("one-way")
async def one_way(world: World) -> str:
    proxy, source = a_proxy(world, "one_way"), world.chance.choice((NODE, EDGE))
    proxy.hold(source)
    seconds = world.chance.uniform(0.5, 4.0)
    await asyncio.sleep(seconds)
    return end_of_hold(world, proxy, f"nothing from the {source} {seconds:.1f} s")


@kind("black hole")
async def black_hole(world: World) -> str:
    proxy = a_proxy(world, "hold")
    proxy.hold(NODE, EDGE)
    seconds = world.chance.choice((0.5, 1.0, 2.0, 3.0, 16.0))
    await asyncio.sleep(seconds)
    return end_of_hold(world, proxy, f"{seconds:.1f} s")


def end_of_hold(world: World, proxy: Proxy, told: str) -> str:
    """It goes on as if nothing had been, or the connections die."""
    if world.chance.random() < 0.5:
        proxy.reset()
        told += ", then a reset"
    proxy.heal()
    return told


@kind("limbo")
async def limbo(world: World) -> str:
    proxy, chance = a_proxy(world, "limbo"), world.chance
    late_s = chance.choice((0.05, 0.3, 0.8, 1.5, 3.0))
    await proxy.limbo(chance.uniform(0.05, 0.5), late_s, chance.uniform(0.0, 1.0))
    proxy.heal()
    return f"{late_s} s late"


@kind("slow")
async def slow(world: World) -> str:
    proxy, chance = a_proxy(world, "slow"), world.chance
    if chance.random() < 0.5:
        proxy.delay_s = chance.uniform(0.05, 1.0)
        told = f"{proxy.delay_s:.2f} s later"
    else:
        proxy.drip_bytes = chance.choice((40, 150, 600))
        told = f"{proxy.drip_bytes} bytes at a time"
    await asyncio.sleep(chance.uniform(0.5, 3.0))
    proxy.heal()
    return told


@kind("flip a bit")
async def flip(world: World) -> str:
    proxy, source = a_proxy(world, "flip"), world.chance.choice((NODE, NODE, EDGE))
    proxy.next_flip = source
    return await until_done(proxy, lambda: not proxy.next_flip, f"from the {source}")


@kind("truncate")
async def truncate(world: World) -> str:
    proxy, source = a_proxy(world, "truncate"), world.chance.choice((NODE, NODE, EDGE))
    proxy.next_cut = source
    return await until_done(proxy, lambda: not proxy.next_cut, f"from the {source}")


async def until_done(proxy: Proxy, done: Callable[[], bool], told: str) -> str:
    deadline = time.monotonic() + POINT_S
    try:
        while not done():
            if time.monotonic() > deadline:
                raise NothingThere("nothing came through")
            await asyncio.sleep(0.01)
    finally:
        proxy.heal()
    return told
