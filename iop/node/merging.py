"""The edge's part of an adapter's configuration with the node's own, which wins. Pure."""

from __future__ import annotations

from iop.config import LIMITS
from iop.proto.node_pb2 import AdapterConfig, TargetConfig


def merged_part(asked: AdapterConfig, own: AdapterConfig) -> AdapterConfig:
    """The edge's targets and the node's own, which win by name and come first."""
    merged = AdapterConfig(adapter=asked.adapter, concurrency=_lower(asked.concurrency, own.concurrency))
    by_name = {target.name: target for target in asked.targets}
    merged.targets.extend(_own_target(target, by_name.get(target.name)) for target in own.targets)
    mine = {target.name for target in own.targets}
    merged.targets.extend(target for target in asked.targets if target.name not in mine)
    return merged


def _own_target(own: TargetConfig, asked: TargetConfig | None) -> TargetConfig:
    """The owner's target; the edge may give it more names, fewer slots and lower limits."""
    if asked is None:
        return own
    merged = TargetConfig()
    merged.CopyFrom(own)
    merged.aliases.extend(alias for alias in asked.aliases if alias not in own.aliases)
    merged.concurrency = _lower(asked.concurrency, own.concurrency)
    for name in LIMITS:
        mine, theirs = getattr(own.limits, name), getattr(asked.limits, name)
        setattr(merged.limits, name, min(mine, theirs) if mine and theirs else mine or theirs)
    return merged


def _lower(asked: float, own: float) -> int:
    """The smaller of two numbers of which 0 means none."""
    return int(min(asked, own) if asked and own else asked or own)
