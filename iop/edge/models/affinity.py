"""Which runs belong together, and which may wait: read from what clients send anyway. Pure.

Runs of one conversation share the beginning of their prompt, and a backend that has seen it answers sooner. Clients name
their conversation in several ways; where none does, the beginning itself is the name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from iop.errors import InvalidRequest
from iop.events import json_encode

PREFIX_BYTES = 16 * 1024         # of a prompt, that count: a system prompt and what follows it
MAX_PRIORITY = 1000
Header = Callable[[str], str | None]

# Claude Code 2.1.273 and later, with CLAUDE_CODE_GATEWAY_HINT_HEADERS=1: nobody waits at a screen for the later ones.
_CLASSES = {"main": 0, "subagent": -10, "workflow": -10, "compaction": -20, "auxiliary": -20}
# Claude Code; codex; opencode and others; Open WebUI where it forwards what it knows of its user.
_SESSION_HEADERS = ("x-claude-code-session-id", "session-id", "session_id", "x-session-id", "x-session-affinity",
                    "x-openwebui-chat-id")


def affinity_of(principal: str, header: Header, cache_key: object = None, prefix: Iterable[Any] = ()) -> str:
    """A name for the runs that a warm cache helps, different for each principal; "" where there is nothing to tell by.

    `prefix`: the beginning of the prompt, in parts of any shape; only what is asked for of it is read.
    """
    named = cache_key if isinstance(cache_key, str) else None
    for name in _SESSION_HEADERS:
        if value := header(name):
            named = value
            break
    told = named.encode("utf-8", "surrogatepass") if named else _beginning(prefix)
    return hashlib.blake2b(b"%b\0%b" % (principal.encode(), told), digest_size=16).hexdigest() if told else ""


def chat_prefix(messages: Iterable[Any]) -> Iterable[Any]:
    """The messages of a chat up to its first one by a user."""
    for message in messages:
        yield message
        if isinstance(message, dict) and message.get("role") == "user":
            return


def _beginning(parts: Iterable[Any]) -> bytes:
    told = b""
    for part in parts:
        told += part.encode("utf-8", "surrogatepass") if isinstance(part, str) else json_encode(part)
        if len(told) >= PREFIX_BYTES:
            break
    return told[:PREFIX_BYTES]


def priority_of(header: Header) -> int:
    """How urgent a run is meant to be; what its key may is another matter. Raises InvalidRequest."""
    text = header("x-iop-priority")
    if text is None:
        return _CLASSES.get(header("x-claude-code-request-class") or "", 0)
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 9 and int(digits) <= MAX_PRIORITY):
        raise InvalidRequest(f"x-iop-priority is a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}.")
    return int(text)
