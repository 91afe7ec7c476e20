"""The kinds of faults, by name: each does its harm to a world, undoes it, and tells in a word what it did.

A kind that finds nothing to harm (no supervisor, say) raises NothingThere; the schedule then takes the next one, and
comes back to it later. A fault counts once it has happened.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress

from tests.faults import kinds_disks, kinds_links, processes
from tests.faults.kind import KINDS, POINT_S, NothingThere, kind
from tests.faults.processes import Service
from tests.faults.world import World

__all__ = ["KINDS", "kinds_disks", "kinds_links"]       # importing these puts their kinds into the table


def a_node(world: World) -> Service:
    alive = [node for node in world.nodes if node.alive and not node.stopped]
    if not alive:
        raise NothingThere("no node is alive")
    return world.chance.choice(alive)


def the_edge(world: World) -> Service:
    if not world.edge.alive or world.edge.stopped or not world.edge.wanted:
        raise NothingThere("the edge is not alive")
    return world.edge


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
