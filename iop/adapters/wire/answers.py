"""Whether an answer in one piece is asked of a backend as one, or as a stream that the node joins (docs/adr/0022). Pure."""

from __future__ import annotations

from typing import Literal

Answers = Literal["auto", "joined", "plain"]

# By the Server header: those that look seldom whether the client of an unstreamed request is still there. llama.cpp's looks
# about once a second, and at each chunk where it streams (2026-12); vLLM, SGLang and Ollama are told of it at once.
_LOOK_SELDOM = ("llama.cpp",)


def joins(setting: Answers, server: str | None) -> bool:
    """`server`: its Server header, empty where it has none; None while it has not been heard of."""
    return setting == "joined" or (setting == "auto" and (server is None or server.lower().startswith(_LOOK_SELDOM)))
