"""The kinds of faults, by name: each does its harm to a world, undoes it, and tells in a word what it did.

A kind that finds nothing to harm (no supervisor, say) raises NothingThere; the schedule then takes the next one, and
comes back to it later. A fault counts once it has happened.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from tests.faults import processes
from tests.faults.processes import Service
from tests.faults.proxy import EDGE, NODE, Proxy
from tests.faults.world import World

POINT_S = 4.0            # an armed point that nobody passes in this long is disarmed


class NothingThere(Exception):
    """There is nothing now that this kind could harm."""


Kind = Callable[[World], Awaitable[str]]
KINDS: dict[str, Kind] = {}


def kind(name: str) -> Callable[[Kind], Kind]:
    def put(function: Kind) -> Kind:
        KINDS[name] = function
        return function
    return put


def a_node(world: World) -> Service:
    alive = [node for node in world.nodes if node.alive and not node.stopped]
    if not alive:
        raise NothingThere("no node is alive")
    return world.chance.choice(alive)


def the_edge(world: World) -> Service:
    if not world.edge.alive or world.edge.stopped or not world.edge.wanted:
        raise NothingThere("the edge is not alive")
    return world.edge


def a_proxy(world: World, name: str) -> Proxy:
    """One that does nothing else now and has a connection."""
    free = [proxy for proxy in world.proxies if proxy.mode == "pass" and proxy.pairs]
    if not free:
        raise NothingThere("no link is up")
    proxy = world.chance.choice(free)
    proxy.mode = name
    return proxy


# --- processes


@kind("kill edge")
async def kill_edge(world: World) -> str:
    the_edge(world).kill()
    return "edge"


@kind("kill node")
async def kill_node(world: World) -> str:
    node = a_node(world)
    node.kill()
    return node.name


@kind("kill both")
async def kill_both(world: World) -> str:
    edge, node = the_edge(world), a_node(world)
    edge.kill()
    node.kill()
    return f"edge and {node.name}"


@kind("kill supervisor")
async def kill_supervisor(world: World) -> str:
    found = processes.supervisors(str(world.place.programs))
    if not found:
        raise NothingThere("no supervisor is at work")
    pid = world.chance.choice(found)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return str(pid)


async def stand_still(world: World, service: Service) -> str:
    seconds = world.chance.uniform(1.0, 5.0)
    pid = service.pid
    service.signal(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    if service.pid == pid:
        service.signal(signal.SIGCONT)
    return f"{service.name} {seconds:.1f} s"


@kind("stop node")
async def stop_node(world: World) -> str:
    return await stand_still(world, a_node(world))


@kind("stop edge")
async def stop_edge(world: World) -> str:
    return await stand_still(world, the_edge(world))


async def die_at(world: World, point: str) -> str:
    """Arm a point in the edge, or in every node until one of them has died there."""
    after = world.chance.choice((0, 0, 1, 3, 10))
    if point.startswith("edge"):
        arms = [(the_edge(world), world.place.arm)]
    else:
        arms = [(node, place.arm) for node, place in zip(world.nodes, world.place.nodes, strict=True) if node.alive]
    if not arms or any(arm.armed for _, arm in arms):
        raise NothingThere("no process is there to be armed")
    pids = [service.pid for service, _ in arms]
    for _, arm in arms:
        arm.set(point, after)
    deadline = time.monotonic() + POINT_S
    try:
        while time.monotonic() < deadline:
            for (service, arm), pid in zip(arms, pids, strict=True):
                if not arm.armed and (service.pid != pid or not service.alive):
                    return f"{service.name} after {after} more"
            await asyncio.sleep(0.01)
    finally:
        for _, arm in arms:
            arm.disarm()
    raise NothingThere(f"nobody passed {point}")


def _point_kind(point: str) -> None:
    async def die(world: World) -> str:
        return await die_at(world, point)
    KINDS[f"die at {point}"] = die


for _point in ("edge.received", "edge.relayed", "edge.before_commit", "edge.committed", "edge.acknowledged",
               "node.before_spool", "node.torn", "node.spooled", "node.accepted", "node.acknowledged"):
    _point_kind(_point)


# --- links


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


# --- disks and databases


@kind("history disk full")
async def history_full(world: World) -> str:
    disk = world.place.edge_disk
    if not disk.small or world.place.history_url:
        raise NothingThere("the history is on no small disk")
    seconds = world.chance.uniform(0.5, 2.5)
    disk.fill()
    await asyncio.sleep(seconds)
    disk.free()
    return f"{seconds:.1f} s"


@kind("spool disk full")
async def spool_full(world: World) -> str:
    place = world.chance.choice(world.place.nodes)
    if not place.disk.small:
        raise NothingThere("the node's state is on no small disk")
    seconds = world.chance.uniform(0.5, 2.5)
    place.disk.fill()
    await asyncio.sleep(seconds)
    place.disk.free()
    return f"{place.name} {seconds:.1f} s"


@kind("database restarted")
async def database_restarted(world: World) -> str:
    """PostgreSQL crashes and comes back; an SQLite file is locked by somebody else meanwhile."""
    seconds = world.chance.uniform(0.2, 1.5)
    server = world.server
    if server is None:
        if not world.place.shared_file.exists():
            raise NothingThere("no edge has opened it")
        return await asyncio.to_thread(lock_file, world.place.shared_file, seconds)
    how = world.chance.choice((server.kill, server.stop))
    await asyncio.to_thread(how)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(server.start)
    return f"PostgreSQL, {seconds:.1f} s away"


def lock_file(file: Path, seconds: float) -> str:
    """Hold the write lock of a WAL as another connection would (sqlite.org/walformat.html: byte 120 of the -shm file).

    No real connection: this SQLite can corrupt a WAL that several use.
    """
    with file.open("r+b") as shared:
        try:
            fcntl.lockf(shared, fcntl.LOCK_EX, 1, 120)
        except OSError as error:
            raise NothingThere(str(error)) from None
        time.sleep(seconds)
    return f"SQLite locked for {seconds:.1f} s"


# --- what people do


@kind("cancel")
async def cancel(world: World) -> str:
    found = [asked for asked in world.load.open_runs if not asked.cancelled]
    if not found:
        raise NothingThere("nothing runs")
    asked = world.chance.choice(found)
    if not await world.load.cancel(asked):
        raise NothingThere("it is not there any more")
    return asked.run_id


@kind("reload")
async def reload(world: World) -> str:
    world.generation += 1
    service = world.chance.choice((the_edge(world), a_node(world)))
    with suppress(OSError):              # the disk may be full
        world.place.write_edge(world.generation, **world.edge_settings)
    service.signal(signal.SIGHUP)
    return service.name


@kind("node restarted in place")
async def reexec(world: World) -> str:
    node = a_node(world)
    node.signal(signal.SIGUSR2)
    return node.name
