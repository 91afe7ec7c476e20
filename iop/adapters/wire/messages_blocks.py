"""The messages of Anthropic's Messages API as those of a chat: blocks become parts, calls, results and reasoning. Pure.

::

    system                                            -> system
    user:      tool_result*, text, image, document    -> tool*, user
    assistant: thinking, text, tool_use*              -> assistant with reasoning_content, content, tool_calls

Messages of one role that follow each other are one turn, as Anthropic says: most chat templates refuse what does not
alternate. They refuse a system message in the middle too; it becomes what Claude Code itself makes of its reminders.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from iop.adapters.wire.messages_fields import is_object, is_text, refuse

# Claude Code's own line for Anthropic's books. It differs between conversations, which share all that follows: with it, none
# would find the prefix of another in the cache.
_BILLING = "x-anthropic-billing-header"
_ROLES = {"ctx": "user", "msg": "user"}      # which some clients send, as vLLM has found (its protocol.py, 2026-11)
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9.+-]{1,60}/[A-Za-z0-9.+-]{1,60}")
_PASSED_OVER = frozenset(("redacted_thinking", "compaction", "container_upload", "tool_reference"))


def chat_messages(body: dict[str, Any], warnings: list[str]) -> list[dict[str, Any]]:
    """Raises InvalidRequest."""
    asked = body.get("messages")
    if not isinstance(asked, list) or not asked:
        refuse("messages", "must be a list of at least one message")
    found: list[dict[str, Any]] = []
    system = _system(body.get("system"))
    if system:
        found.append({"role": "system", "content": system})
    for index, message in enumerate(asked):
        for told in _told(message, f"messages.{index}", warnings):
            _join(found, told)
    _put_results_in_order(found)
    return found


def _system(told: Any) -> str:
    if told is None or isinstance(told, str):
        return told or ""
    if not isinstance(told, list):
        refuse("system", "must be a text or a list of blocks")
    texts = [is_text(is_object(block, f"system.{place}").get("text"), f"system.{place}.text")
             for place, block in enumerate(told) if not billing(block)]
    return "\n\n".join([text for text in texts if text])


def billing(block: Any) -> bool:
    """Whether a block of the system prompt is that line."""
    text = block.get("text") if isinstance(block, dict) else None
    return isinstance(text, str) and text.startswith(_BILLING)


def _told(message: Any, place: str, warnings: list[str]) -> list[dict[str, Any]]:
    """The chat messages that one message becomes."""
    role, content = is_object(message, place).get("role"), message.get("content")
    role = _ROLES.get(role, role) if isinstance(role, str) else role
    if role not in ("user", "assistant", "system"):
        refuse(f"{place}.role", "must be user or assistant")
    if isinstance(content, str):
        content = [_text(content)]
    if not isinstance(content, list):
        refuse(f"{place}.content", "must be a text or a list of blocks")
    blocks = [is_object(block, f"{place}.content.{number}") for number, block in enumerate(content)]
    turn = _Turn(f"{place}.content", warnings)
    for number, block in enumerate(blocks):
        turn.add(block, number)
    return turn.told(role)


class _Turn:
    """One message, block by block."""

    def __init__(self, place: str, warnings: list[str]) -> None:
        self._place = place
        self._warnings = warnings
        self._parts: list[dict[str, Any]] = []
        self._thoughts: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._results: list[dict[str, Any]] = []

    def add(self, block: dict[str, Any], number: int) -> None:
        place, kind = f"{self._place}.{number}", block.get("type")
        if kind == "thinking":
            self._thoughts.append(is_text(block.get("thinking"), f"{place}.thinking"))
        elif kind == "tool_use":
            self._calls.append(_call(block, place))
        elif kind == "tool_result":
            self._result(block, place)
        else:
            self._parts += self._content(block, place)

    def told(self, role: str) -> list[dict[str, Any]]:
        if role != "assistant":
            turn = [{"role": role, "content": _plainest(self._parts)}] if self._parts or not self._results else []
            return self._results + turn
        message: dict[str, Any] = {"role": role, "content": _plainest(self._parts)}
        if self._thoughts:
            message["reasoning_content"] = "".join(self._thoughts)
        if self._calls:
            message["tool_calls"] = self._calls
        return [message]

    def _result(self, block: dict[str, Any], place: str) -> None:
        """A tool message is a text; what else is in the result follows as the user's."""
        call_id, content = is_text(block.get("tool_use_id"), f"{place}.tool_use_id"), block.get("content")
        parts: list[dict[str, Any]] = []
        if isinstance(content, str):
            parts = [_text(content)]
        elif isinstance(content, list):
            for number, inner in enumerate(content):
                parts += self._content(is_object(inner, f"{place}.content.{number}"), f"{place}.content.{number}")
        elif content is not None:
            refuse(f"{place}.content", "must be a text or a list of blocks")
        texts = [part["text"] for part in parts if part["type"] == "text"]
        self._results.append({"role": "tool", "tool_call_id": call_id, "content": "\n".join(texts)})
        self._parts += [part for part in parts if part["type"] != "text"]

    def _content(self, block: dict[str, Any], place: str) -> list[dict[str, Any]]:
        """The parts of a block that is for the model to read."""
        kind = block.get("type")
        if kind == "text":
            text = is_text(block.get("text"), f"{place}.text")
            return [_text(text)] if text else []
        if kind == "image":
            return [{"type": "image_url", "image_url": {"url": _image(block.get("source"), f"{place}.source")}}]
        if kind == "document":
            return self._document(block, place)
        if kind == "search_result":
            return self._search_result(block, place)
        if not isinstance(kind, str):
            refuse(f"{place}.type", "must be a text")
        if kind not in _PASSED_OVER:
            self._warnings.append(f"A block of the type {kind[:64]!r} was left out: the backend's API does not know it.")
        return []

    def _search_result(self, block: dict[str, Any], place: str) -> list[dict[str, Any]]:
        content = block.get("content")
        inner = [part for one in (content if isinstance(content, list) else ())
                 for part in self._content(is_object(one, f"{place}.content"), f"{place}.content")]
        return [_text(f"{block.get('title') or ''} ({block.get('source') or ''})"), *inner]

    def _document(self, block: dict[str, Any], place: str) -> list[dict[str, Any]]:
        source = is_object(block.get("source"), f"{place}.source")
        kind, title = source.get("type"), block.get("title")
        if kind == "text":
            return [_text("\n".join([*([title] if isinstance(title, str) else ()),
                                     is_text(source.get("data"), f"{place}.source.data")]))]
        if kind == "content":
            inner = source.get("content")
            if isinstance(inner, str):
                return [_text(inner)]
            return [part for number, one in enumerate(inner if isinstance(inner, list) else ())
                    for part in self._content(is_object(one, f"{place}.source.content.{number}"), f"{place}.source.content")]
        if kind == "base64":
            name = title if isinstance(title, str) else "document"
            return [{"type": "file", "file": {"filename": name, "file_data": _data_url(source, f"{place}.source")}}]
        self._warnings.append(f"A document from {str(kind)[:64]!r} was left out: this backend has no such place.")
        return []


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _plainest(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Text where there is nothing but text: some backends take nothing else."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join([part["text"] for part in parts])
    return parts


def _call(block: dict[str, Any], place: str) -> dict[str, Any]:
    asked = block.get("input")
    arguments = msgspec.json.encode({} if asked is None else is_object(asked, f"{place}.input")).decode()
    return {"id": is_text(block.get("id"), f"{place}.id"), "type": "function",
            "function": {"name": is_text(block.get("name"), f"{place}.name"), "arguments": arguments}}


def _image(source: Any, place: str) -> str:
    kind = is_object(source, place).get("type")
    if kind == "url":
        return is_text(source.get("url"), f"{place}.url")
    if kind == "base64":
        return _data_url(source, place)
    return refuse(place, "must be base64 or a url; this backend keeps no files")


def _data_url(source: dict[str, Any], place: str) -> str:
    media_type = is_text(source.get("media_type"), f"{place}.media_type")
    if not _MEDIA_TYPE.fullmatch(media_type):
        refuse(f"{place}.media_type", "is no media type")
    return f"data:{media_type};base64,{is_text(source.get('data'), f'{place}.data')}"


# --- one turn

def _put_results_in_order(found: list[dict[str, Any]]) -> None:
    """Answers of tools in the order of their calls: many chat templates show no ids, and clients answer as tools end."""
    for place, message in enumerate(found):
        if message.get("tool_calls"):
            end = place + 1
            while end < len(found) and found[end]["role"] == "tool":
                end += 1
            order = {call["id"]: number for number, call in enumerate(message["tool_calls"])}
            found[place + 1:end] = sorted(found[place + 1:end], key=lambda told: order.get(told["tool_call_id"], len(order)))


def _join(found: list[dict[str, Any]], told: dict[str, Any]) -> None:
    """Add a message; to the one before it where both are of one role, and not answers of tools."""
    last = found[-1] if found else None
    if told["role"] == "system" and last is not None:
        reminder = f"<system-reminder>\n{told['content']}\n</system-reminder>"
        told = told | ({"content": f"\n{told['content']}"} if last["role"] == "system" else
                       {"role": "user", "content": reminder})
    if last is None or last["role"] != told["role"] or told["role"] == "tool":
        found.append(told)
        return
    last["content"] = _both(last["content"], told["content"])
    for name in ("reasoning_content", "tool_calls"):
        if name in told:
            last[name] = last[name] + told[name] if name in last else told[name]


def _both(first: str | list[dict[str, Any]], second: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if isinstance(first, str) and isinstance(second, str):
        return "\n".join([text for text in (first, second) if text])
    return _as_parts(first) + _as_parts(second)


def _as_parts(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return content if isinstance(content, list) else [_text(content)] if content else []
