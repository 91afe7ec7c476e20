"""The models of an edge as Ollama's clients list them. Pure; from memory.

Ollama's names have a tag, and some of its clients (Open WebUI) put `:latest` behind a name without one before they look it
up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from iop.errors import NoSuchTarget
from iop.events import rfc3339
from iop.interfaces import IEdgeService
from iop.records import ModelEntry

LATEST = ":latest"
VERSION = "0.12.6"               # of Ollama, whose API is spoken here; clients compare it
# What says "for ever" to Ollama's clients: when a model is unloaded is its node's affair.
FOR_EVER = "2318-01-01T00:00:00Z"


def tagged(name: str) -> str:
    return name if ":" in name.rpartition("/")[2] else name + LATEST


def known_name(edge: IEdgeService, name: str) -> str:
    """The name by which the edge knows a model that an Ollama client names. Raises NoSuchTarget."""
    try:
        edge.resolve(name)
    except NoSuchTarget:
        if not name.endswith(LATEST):
            raise
        edge.resolve(name.removesuffix(LATEST))
        return name.removesuffix(LATEST)
    return name


def _details(entry: ModelEntry) -> dict[str, object]:
    return {"parent_model": "", "format": "", "family": entry.adapter, "families": [entry.adapter], "parameter_size": "",
            "quantization_level": ""}


def _model(entry: ModelEntry) -> dict[str, object]:
    name = tagged(entry.name)
    digest = hashlib.sha256(f"{entry.adapter}/{entry.target}".encode()).hexdigest()
    return {"name": name, "model": name, "size": 0, "digest": digest, "details": _details(entry)}


def tags(entries: Iterable[ModelEntry]) -> dict[str, object]:
    return {"models": [_model(entry) | {"modified_at": rfc3339(entry.created_us)} for entry in entries]}


def loaded(entries: Iterable[ModelEntry]) -> dict[str, object]:
    """Those that are known to stand in some node's memory."""
    return {"models": [_model(entry) | {"expires_at": FOR_EVER, "size_vram": 0, "context_length": entry.context_tokens}
                       for entry in entries if entry.ready and entry.warm]}


def shown(entry: ModelEntry) -> dict[str, object]:
    info: dict[str, object] = {"general.architecture": entry.adapter, "general.basename": entry.target}
    if entry.context_tokens:
        info[f"{entry.adapter}.context_length"] = entry.context_tokens
    return {"modelfile": "", "parameters": "", "template": "", "details": _details(entry), "model_info": info,
            "capabilities": ["completion", "tools"], "modified_at": rfc3339(entry.created_us)}
