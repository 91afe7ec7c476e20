"""From a RunRequest to what an adapter carries out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from iop.config import LIMITS
from iop.errors import InvalidRequest, NoSuchTarget
from iop.proto import node_pb2, run_pb2
from iop.runs import ExecutionSpec, is_run_id
from iop.servers import ServerSpec

KNOWN_LIMITS = 64          # different ones that are remembered of a target
OUTPUT_BYTES = 1024 * 1024 * 1024  # of a run for which nobody set a limit


@dataclass(frozen=True)
class OfferedTarget:
    """A target that was accepted. `ceiling`: limits of the machine's owner, which a request cannot raise."""

    config: node_pb2.TargetConfig
    settings: object
    requirements: tuple[object, ...] = ()
    own: bool = False
    ceiling: run_pb2.Limits = field(default_factory=run_pb2.Limits)
    takes_input: bool = False
    server: ServerSpec | None = None         # the node starts it itself

    @property
    def name(self) -> str:
        return self.config.name

    @cached_property
    def packed(self) -> bytes:
        """Its configuration, as the record keeps it."""
        return self.config.SerializeToString()

    def limits(self, asked: run_pb2.Limits) -> run_pb2.Limits:
        """Those of a run that asks for these; most ask for the same, and nobody changes what is given."""
        packed = asked.SerializeToString()
        found = self._limits.get(packed)
        if found is None:
            found = limits(asked, self.config.limits, self.ceiling)
            if len(self._limits) < KNOWN_LIMITS:
                self._limits[packed] = found
        return found

    @cached_property
    def _limits(self) -> dict[bytes, run_pb2.Limits]:
        return {}


class Offer(Protocol):
    """An adapter that was accepted."""

    targets: Mapping[str, OfferedTarget]


def resolve(request: run_pb2.RunRequest, offers: Mapping[str, Offer], marker: Mapping[str, str]) -> ExecutionSpec:
    """What to carry out; raises InvalidRequest or NoSuchTarget. `marker`: environment of the node's programs."""
    if not is_run_id(request.run_id) or request.attempt < 1:
        raise InvalidRequest("A run needs its id (32 hex digits) and an attempt from 1.")
    if request.WhichOneof("input") is None:
        raise InvalidRequest("A run needs an input: prompt, messages or body.")
    offer = offers.get(request.adapter)
    if offer is None:
        raise NoSuchTarget(f"This node has no adapter {request.adapter!r} configured.")
    target = offer.targets.get(request.target)
    if target is None:
        raise NoSuchTarget(f"The adapter {request.adapter} of this node has no target {request.target!r}.")
    return ExecutionSpec(
        run_id=request.run_id, attempt=request.attempt, adapter=request.adapter, target=target.name,
        settings=target.settings, request=request,
        limits=target.limits(request.limits),
        marker={**marker, "IOP_RUN_ID": request.run_id})


def limits(asked: run_pb2.Limits, default: run_pb2.Limits, ceiling: run_pb2.Limits) -> run_pb2.Limits:
    """What was asked, else the target's default; never above the owner's ceiling. 0 stays 0: no limit."""
    found = run_pb2.Limits()
    for name in LIMITS:
        value, top = getattr(asked, name) or getattr(default, name), getattr(ceiling, name)
        setattr(found, name, min(value, top) if value and top else value or top)
    found.output_bytes = found.output_bytes or OUTPUT_BYTES
    return found
