"""A request of the older completions API, told as one of chat/completions. Pure."""

from __future__ import annotations

from typing import Any

from iop.adapters.wire.translated import Translated
from iop.errors import InvalidRequest

_LEFT_OUT = ("suffix", "echo", "best_of", "logprobs")
_NOTHING = (None, False, "", 0)


def to_chat(body: dict[str, Any], model: str) -> Translated:
    """The prompt becomes the user's message: a template then stands around it. Raises InvalidRequest."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        [prompt] = prompt
    if not isinstance(prompt, str):
        raise InvalidRequest("This backend has no completions, only chats: `prompt` must be one text.")
    chat = {name: value for name, value in body.items() if name not in ("prompt", *_LEFT_OUT)}
    warnings = ["The backend has no completions: the prompt was told as a chat's message.",
                *(f"`{name}` was left out: a chat does not know it." for name in _LEFT_OUT if body.get(name) not in _NOTHING)]
    return Translated(chat | {"model": model, "messages": [{"role": "user", "content": prompt}]}, tuple(warnings))
