"""Directed scenarios: each aims at one rule of the delivery, and must be survived; the mutants are caught by them.

A scenario is let loose on a small world under load and returns what it saw itself, as (kind, detail); the checker then
judges everything else.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable

from tests.faults.kinds_disks import lock_file
from tests.faults.pair import EDGE, NODE
from tests.faults.world import World

NOTICED_S = 15.0         # a dead peer, by both sides
PROGRAMS, STREAMS = 4, 1

Scenario = Callable[[World], Awaitable[list[tuple[str, str]]]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


async def busy(world: World) -> None:
    async def producing() -> bool:
        return world.load.producing >= PROGRAMS - 1
    await world.wait_for(producing, "runs produce")


@scenario
async def an_edge_dies_with_events_that_history_has_not(world: World) -> list[tuple[str, str]]:
    """Nothing may be acknowledged before its commit."""
    for _ in range(2):
        await busy(world)
        locked = asyncio.get_running_loop().run_in_executor(None, lock_file, world.place.shared_file, 1.2)
        await asyncio.sleep(1.0)
        world.edge.kill()
        await locked
        await world.come_back(30.0)
    return []


@scenario
async def a_link_breaks_with_events_that_history_has_not(world: World) -> list[tuple[str, str]]:
    """What the edge has and has not committed comes again, and is dropped."""
    for _ in range(2):
        await busy(world)
        locked = asyncio.get_running_loop().run_in_executor(None, lock_file, world.place.shared_file, 2.5)
        await asyncio.sleep(0.8)
        for proxy in world.proxies:
            proxy.reset()
        await locked
        await world.come_back(30.0)
    return []


@scenario
async def a_link_swallows_what_was_sent(world: World) -> list[tuple[str, str]]:
    """What was sent and not acknowledged is kept."""
    for _ in range(2):
        await busy(world)
        for proxy in world.proxies:
            proxy.hold(NODE)
        await asyncio.sleep(1.0)
        for proxy in world.proxies:
            proxy.reset()
            proxy.heal()
        await world.come_back(30.0)
    return []


@scenario
async def a_node_dies_with_events_that_the_edge_has_not(world: World) -> list[tuple[str, str]]:
    """They are on its disk."""
    for _ in range(2):
        await busy(world)
        for proxy in world.proxies:
            proxy.hold(NODE, EDGE)
        await asyncio.sleep(1.0)
        for node in world.nodes:
            node.kill()
        await asyncio.sleep(0.3)
        for proxy in world.proxies:
            proxy.heal()
        await world.come_back(30.0)
    return []


@scenario
async def a_frame_is_left_out(world: World) -> list[tuple[str, str]]:
    """A hole is asked for again, and never shown."""
    for proxy in world.proxies:
        proxy.framing = True
        proxy.reset()
    await world.come_back(30.0)
    for _ in range(4):
        await busy(world)
        for proxy in world.proxies:
            proxy.lose_above, proxy.to_lose = 80, 1
        await asyncio.sleep(0.7)
    lost = sum(proxy.lost for proxy in world.proxies)
    return [] if lost else [("not noticed", "the proxy had no frame to lose")]


@scenario
async def a_peer_goes_silent(world: World) -> list[tuple[str, str]]:
    """A black hole in front of one node, and another node that stands still: both sides notice in time."""
    await busy(world)
    proxy, first, second = world.proxies[0], world.nodes[0], world.nodes[1]
    dialed = proxy.connections
    proxy.hold(NODE, EDGE)
    second.signal(signal.SIGSTOP)
    began_s = time.monotonic()
    up = {first.name, second.name}
    redialed_s = 0.0
    while time.monotonic() - began_s < NOTICED_S and (up or not redialed_s):
        await asyncio.sleep(0.2)
        up &= set(await world.nodes_in("up"))
        if not redialed_s and proxy.connections > dialed:
            redialed_s = time.monotonic() - began_s
    found = [("not noticed", f"the edge has {name} as up after {NOTICED_S:.0f} s of silence") for name in sorted(up)]
    if not redialed_s:
        found.append(("not noticed", f"{first.name} has not dialed again after {NOTICED_S:.0f} s of silence"))
    second.signal(signal.SIGCONT)
    proxy.heal()
    await world.come_back(45.0)
    return found


@scenario
async def a_node_comes_back_after_its_runs_were_given_up(world: World) -> list[tuple[str, str]]:
    """Its late events are kept apart, and do not change the ending. The world's patience is 2 s."""
    for _ in range(2):
        await busy(world)
        for proxy in world.proxies:
            proxy.hold(NODE, EDGE)
        await asyncio.sleep(0.5)
        for proxy in world.proxies:
            proxy.reset()
        await asyncio.sleep(3.0)
        for proxy in world.proxies:
            proxy.heal()
        await world.come_back(30.0)
    return []


@scenario
async def nodes_are_killed_under_their_programs(world: World) -> list[tuple[str, str]]:
    """The programs go on, and none is begun again."""
    for _ in range(3):
        await busy(world)
        for node in world.nodes:
            node.kill()
        await asyncio.sleep(0.5)
        await world.come_back(30.0)
    return []
