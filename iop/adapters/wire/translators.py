"""Which API of a model backend can be told in another one. Pure."""

from __future__ import annotations

from typing import Any

from iop.adapters.wire import from_completions, from_messages, from_ollama, from_responses
from iop.adapters.wire.requests import decoded
from iop.adapters.wire.translated import Translated
from iop.modelapis import COMPLETIONS, MESSAGES, OLLAMA, RESPONSES

_TO_CHAT = {COMPLETIONS: from_completions.to_chat, MESSAGES: from_messages.to_chat, RESPONSES: from_responses.to_chat}
_NEEDS_TRANSLATION = {MESSAGES: from_messages.needs_translation, RESPONSES: from_responses.needs_translation}


def can_be_translated(api: str) -> bool:
    return api in _TO_CHAT or api in OLLAMA


def needs_translation(api: str, body: bytes) -> bool:
    """Whether what most backends have of that API would pass over or refuse parts of this body. Raises InvalidRequest."""
    needs = _NEEDS_TRANSLATION.get(api)
    return needs is not None and needs(decoded(body))


def translated(api: str, body: dict[str, Any], model: str) -> Translated:
    """A body of an API that can be told in another. Raises InvalidRequest."""
    return from_ollama.to_openai(api, body, model) if api in OLLAMA else _TO_CHAT[api](body, model)
