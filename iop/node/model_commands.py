"""The node's commands about models: which there are and how they are, load, unload, and pull from Ollama's library.

Long work goes on by itself; asked again, the command tells how far it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from twisted.internet.defer import Deferred

from iop.commands import CommandTable
from iop.errors import InvalidRequest, IOPError, NoSuchTarget
from iop.interfaces import IHealth, IModels
from iop.node.backend import Backend
from iop.node.router import OfferedTarget
from iop.node.status import target_health
from iop.node.works import Works
from iop.servers import Told


def add_model_commands(table: CommandTable) -> None:
    works = Works()

    @table.command
    def models(node: Any) -> list[dict[str, Any]]:
        """The models of this node, whether they are in memory, and the servers that it started for them."""
        return [_row(node, backend, target) for backend, target in _models(node)]

    @table.command(changes=True)
    async def load(node: Any, target: str, *, wait: float = 20.0) -> dict[str, Any]:
        """Have a model in memory before a run needs it; TARGET is as `models` tells it. Example: load openai/tiny"""
        backend, found = _find(node, target)
        name = f"{backend.name}/{found.name}"
        return await works.ask("load", name, lambda told: _load(node, backend, found, told), wait, node.clock)

    @table.command(changes=True)
    async def unload(node: Any, target: str) -> dict[str, Any]:
        """Take a model out of memory; refused while a run uses its server. Example: unload openai/tiny"""
        backend, found = _find(node, target)
        if IModels.providedBy(backend.adapter) and found.server is None:
            await IModels(backend.adapter).unload(found.name, "")
            node.health.look(backend)
        elif found.server is not None:
            node.tools.servers.unload(found.server)
        else:
            raise _not_ours(backend, found)
        return {"unload": f"{backend.name}/{found.name}", "ended": True}

    @table.command(changes=True)
    async def pull(node: Any, name: str, *, target: str = "", wait: float = 20.0) -> dict[str, Any]:
        """Fetch a model from Ollama's library. Asked again, it tells how far it is; --target names the Ollama to use where
        there are several. Example: pull llama3.2:3b"""
        backend, found = _puller(node, name, target)

        def begin(told: Told) -> Deferred[None]:
            return Deferred.fromCoroutine(_pull(node, backend, found, name, told))

        return await works.ask("pull", name, begin, wait, node.clock)


def _models(node: Any) -> Iterator[tuple[Backend, OfferedTarget]]:
    """Targets that have a model: those whose backend can be looked at."""
    for _, backend in sorted(node.offers.backends.items()):
        if IHealth.providedBy(backend.adapter):
            for target in backend.targets.values():
                yield backend, target


def _row(node: Any, backend: Backend, target: OfferedTarget) -> dict[str, Any]:
    health = target_health(node.health.of(backend, target.name), target, node.tools.servers)
    row = {"target": f"{backend.name}/{target.name}", "state": {True: "warm", False: "cold", None: "ready"}[health.warm],
           "context_tokens": health.context_tokens, "server": "", "users": 0, "progress": 0.0}
    if target.server is not None:
        row |= node.tools.servers.describe(target.server)
    return row | {"detail": health.why_not} | ({"state": "not ready"} if health.why_not else {})


def _find(node: Any, name: str) -> tuple[Backend, OfferedTarget]:
    """By its name, or adapter/name. Raises NoSuchTarget."""
    for backend, target in _models(node):
        if name in (target.name, f"{backend.name}/{target.name}"):
            return backend, target
    known = ", ".join(f"{backend.name}/{target.name}" for backend, target in _models(node)) or "none"
    raise NoSuchTarget(f"This node has no model {name[:100]!r}; it has {known}.")


def _not_ours(backend: Backend, target: OfferedTarget) -> IOPError:
    return InvalidRequest(f"The server of {backend.name}/{target.name} is somebody else's and keeps its model loaded itself; "
                          "with `serve` in the target's settings the node would start and end it.")


def _load(node: Any, backend: Backend, target: OfferedTarget, told: Told) -> Deferred[Any]:
    if target.server is None and not IModels.providedBy(backend.adapter):
        raise _not_ours(backend, target)
    return Deferred.fromCoroutine(_loaded(node, backend, target, told))


async def _loaded(node: Any, backend: Backend, target: OfferedTarget, told: Told) -> None:
    if target.server is not None and not IModels.providedBy(backend.adapter):
        await node.tools.servers.load(target.server, told)
        return
    async with _server_url(node, target, told) as url:
        await IModels(backend.adapter).load(target.name, url)
    node.health.look(backend)


def _puller(node: Any, name: str, target: str) -> tuple[Backend, OfferedTarget]:
    """Whose Ollama fetches it: the target of that name, else the first. Raises NoSuchTarget."""
    if target:
        backend, found = _find(node, target)
        if not IModels.providedBy(backend.adapter):
            raise InvalidRequest(f"{backend.name}/{found.name} is no target of Ollama's.")
        return backend, found
    able = [(backend, found) for backend, found in _models(node) if IModels.providedBy(backend.adapter)]
    if not able:
        raise NoSuchTarget("This node has no target of Ollama's, so that nothing can be pulled.")
    return next(((backend, found) for backend, found in able if name in (found.name, getattr(found.settings, "model", ""))),
                able[0])


async def _pull(node: Any, backend: Backend, target: OfferedTarget, model: str, told: Told) -> None:
    async with _server_url(node, target, told) as url:
        await IModels(backend.adapter).pull(target.name, url, model, told)
    node.health.look(backend)


@asynccontextmanager
async def _server_url(node: Any, target: OfferedTarget, told: Told) -> AsyncIterator[str]:
    """Where the target's server listens, held ready meanwhile; empty where it is not the node's own."""
    if target.server is None:
        yield ""
        return
    use = await node.tools.servers.use(target.server, told)
    try:
        yield use.url
    finally:
        use.release()
