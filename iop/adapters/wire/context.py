"""How long a prompt and its answer may be together, as backends tell it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec


def context_tokens(models: bytes, model: str) -> int:
    """From a list of models: vLLM's `max_model_len`, llama.cpp's `meta.n_ctx` (of a slot; newer) or `meta.n_ctx_train`; 0
    where it does not say."""
    try:
        entries = msgspec.json.decode(models)["data"]
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError):
        return 0
    entries = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    named = [entry for entry in entries if entry.get("id") == model] or (entries if len(entries) == 1 else [])
    return next((found for entry in named for found in _told(entry)), 0)


def shown_context(shown: bytes, options: dict[str, Any]) -> int:
    """From Ollama's /api/show: the target's own `num_ctx`, the model's parameter of that name, or what it was trained for."""
    asked = options.get("num_ctx")
    if isinstance(asked, int) and asked > 0:
        return asked
    try:
        told = msgspec.json.decode(shown)
        for line in str(told.get("parameters", "")).splitlines():
            word, _, value = line.strip().partition(" ")
            if word == "num_ctx" and value.strip().isdigit():
                return int(value)
        info = told.get("model_info") or {}
        return next((value for name, value in info.items() if name.endswith(".context_length") and isinstance(value, int)), 0)
    except (msgspec.DecodeError, AttributeError, RecursionError):
        return 0


def _told(entry: dict[str, Any]) -> Iterator[int]:
    meta = entry.get("meta")
    meta = meta if isinstance(meta, dict) else {}
    for value in (entry.get("max_model_len"), meta.get("n_ctx"), meta.get("n_ctx_train"), entry.get("context_length")):
        if isinstance(value, int) and value > 0:
            yield value
