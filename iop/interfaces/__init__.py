"""The seams of the house. Everything here says what happens when nothing is found, and when a Deferred fires."""

from __future__ import annotations

from iop.interfaces.adapters import (
    IAdapter,
    IAdapterFactory,
    IAdapterTools,
    IExecution,
    IHealth,
    IModels,
    IOffersInput,
    IOutlives,
    IOwnsServers,
    IResumes,
    IRunSink,
    ITakesInput,
)
from iop.interfaces.commands import IStream
from iop.interfaces.edge import IEdgeService, IRunCursor
from iop.interfaces.history import IHistory
from iop.interfaces.link import IGreeter, ILink, ILinkHandler
from iop.interfaces.programs import IProgram, IProgramReceiver, ISpawner
from iop.interfaces.servers import IServers, IServerUse

__all__ = [
    "IAdapter",
    "IAdapterFactory",
    "IAdapterTools",
    "IEdgeService",
    "IExecution",
    "IGreeter",
    "IHealth",
    "IHistory",
    "ILink",
    "ILinkHandler",
    "IModels",
    "IOffersInput",
    "IOutlives",
    "IOwnsServers",
    "IProgram",
    "IProgramReceiver",
    "IResumes",
    "IRunCursor",
    "IRunSink",
    "IServerUse",
    "IServers",
    "ISpawner",
    "IStream",
    "ITakesInput",
]
