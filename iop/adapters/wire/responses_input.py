"""The input items of a Responses request as the messages of a chat. Pure.

::

    message                        -> a message of its role; developers' in the beginning are the system message
    reasoning                      -> reasoning_content of the assistant's message
    function_call, custom_tool_call, local_shell_call …  -> tool_calls of the assistant's last message, or of a new one
    …_output                       -> a tool message; its pictures follow behind the results, as the user's

Most chat templates know one system message, the first, and refuse messages that do not alternate. So what a developer says
later is told as the user's, marked as such, and messages of one role that follow each other are one.
"""

from __future__ import annotations

from typing import Any

from iop.errors import InvalidRequest
from iop.events import json_encode
from iop.toolnames import CUSTOM_ARGUMENT, SEARCH, flat_name

Message = dict[str, Any]
_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
# Calls of built-in tools: the name that the model knows them by, and the field with what it asked.
_BUILT_IN = {"local_shell_call": ("local_shell", "action"), "shell_call": ("shell", "action"),
             "apply_patch_call": ("apply_patch", "operation"), "tool_search_call": (SEARCH, "arguments")}


def messages_of(body: dict[str, Any]) -> tuple[list[Message], list[str]]:
    """The messages, and sentences about what was left out. Raises InvalidRequest that names the item."""
    given, instructions = body.get("input"), body.get("instructions")
    talk = _Talk()
    if isinstance(instructions, str):
        if instructions:
            talk.say("system", instructions)
    elif isinstance(instructions, list):
        talk.read(instructions, "instructions")
    elif instructions is not None:
        raise InvalidRequest("`instructions` must be a text.")
    if isinstance(given, str):
        talk.say("user", given)
    elif isinstance(given, list):
        talk.read(given, "input")
    else:
        raise InvalidRequest("`input` must be a text or a list of items.")
    messages = talk.whole()
    if not messages:
        raise InvalidRequest("`input` has nothing that can be told to the model.")
    return messages, talk.warnings


class _Talk:
    """The messages so far."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self._messages: list[Message] = []
        self._reasoning = ""             # of the assistant's next message
        self._pictures: list[dict[str, Any]] = []    # that results of tools brought

    def read(self, items: list[Any], field: str) -> None:
        for place, item in enumerate(items):
            where = f"{field}[{place}]"
            if not isinstance(item, dict):
                raise InvalidRequest(f"`{where}` must be an object.")
            self._item(item, where)

    def whole(self) -> list[Message]:
        self._show_pictures()
        if self._reasoning:
            message = self._assistant()
            if message["content"] is None and "tool_calls" not in message:
                message["content"] = ""  # a thought and nothing else
        return self._messages

    def say(self, role: str, content: Any) -> None:
        if role == "assistant":
            message = self._assistant()
            message["content"] = _joined(message["content"], content)
            return
        if role == "system" and any(message["role"] != role for message in self._messages):
            role, content = "user", _marked(content)
        self._show_pictures()
        self._add(role, content)

    def _add(self, role: str, content: Any) -> None:
        last = self._messages[-1] if self._messages else None
        if last is not None and last["role"] == role:
            last["content"] = _joined(last["content"], content)
        else:
            self._messages.append({"role": role, "content": content})

    def _item(self, item: dict[str, Any], where: str) -> None:
        kind = item.get("type") or ("message" if "role" in item else None)
        if not isinstance(kind, str):
            raise InvalidRequest(f"`{where}.type` is missing.")
        if kind == "message":
            self._message(item, where)
        elif kind == "reasoning":
            self._reasoning += _thought(item)
        elif kind == "function_call":
            self._call(item, where, _named(item, where), _text_field(item, "arguments", where))
        elif kind == "custom_tool_call":
            arguments = {CUSTOM_ARGUMENT: _text_field(item, "input", where)}
            self._call(item, where, _named(item, where), json_encode(arguments).decode())
        elif kind in _BUILT_IN:
            name, field = _BUILT_IN[kind]
            self._call(item, where, name, json_encode(item.get(field) or {}).decode())
        elif kind == "tool_search_output":
            self._result(item, where, _found(item.get("tools")))
        elif kind.endswith("_output"):
            self._result(item, where, item.get("output"))
        elif kind != "additional_tools":     # those are among the tools already
            self.warnings.append(f"Items of type {kind[:64]!r} were left out: the backend's API does not know them.")

    def _message(self, item: dict[str, Any], where: str) -> None:
        role = _ROLES.get(str(item.get("role")))
        if role is None:
            raise InvalidRequest(f"`{where}.role` must be one of {', '.join(_ROLES)}.")
        content = item.get("content")
        if isinstance(content, str):
            self.say(role, content)
        elif isinstance(content, list):
            self.say(role, _plain(self._parts(content, f"{where}.content")))
        else:
            raise InvalidRequest(f"`{where}.content` must be a text or a list of parts.")

    def _parts(self, parts: list[Any], where: str) -> list[dict[str, Any]]:
        """The parts that a chat knows, in its words."""
        told = []
        for place, part in enumerate(parts):
            if not isinstance(part, dict):
                raise InvalidRequest(f"`{where}[{place}]` must be an object.")
            part_told = _part(part)
            if part_told is None:
                kind = str(part.get("type"))[:64]
                self.warnings.append(f"Content of type {kind!r} was left out: the backend's API does not know it.")
            else:
                told.append(part_told)
        return told

    def _assistant(self) -> Message:
        """The assistant's message that a text or a call belongs to, with the thought before it."""
        if not self._messages or self._messages[-1]["role"] != "assistant":
            self._show_pictures()
            self._messages.append({"role": "assistant", "content": None})
        message = self._messages[-1]
        if self._reasoning:
            message["reasoning_content"] = _joined(message.get("reasoning_content"), self._reasoning)
            self._reasoning = ""
        return message

    def _call(self, item: dict[str, Any], where: str, name: str, arguments: str) -> None:
        call_id = item.get("call_id") or item.get("id")
        if not isinstance(call_id, str):
            raise InvalidRequest(f"`{where}.call_id` must be a text.")
        self._assistant().setdefault("tool_calls", []).append(
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}})

    def _result(self, item: dict[str, Any], where: str, output: Any) -> None:
        call_id = item.get("call_id") or item.get("id")
        if not isinstance(call_id, str):
            raise InvalidRequest(f"`{where}.call_id` must be a text.")
        if isinstance(output, list):
            parts = self._parts([part for part in output if isinstance(part, dict)], f"{where}.output")
            self._pictures += [part for part in parts if part["type"] != "text"]
            output = "\n".join(part["text"] for part in parts if part["type"] == "text")
        elif not isinstance(output, str):
            output = json_encode(output).decode() if output is not None else ""
        self._messages.append({"role": "tool", "tool_call_id": call_id, "content": output})

    def _show_pictures(self) -> None:
        """Results are texts in a chat: what tools brought besides is told as the user's, once all results are told."""
        if self._pictures:
            pictures, self._pictures = self._pictures, []
            self._add("user", pictures)


def _named(item: dict[str, Any], where: str) -> str:
    return flat_name(str(item.get("namespace") or ""), _text_field(item, "name", where))


def _text_field(item: dict[str, Any], name: str, where: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise InvalidRequest(f"`{where}.{name}` must be a text.")
    return value


def _thought(item: dict[str, Any]) -> str:
    """The text of a reasoning item, as far as it is not sealed."""
    for field in ("content", "summary"):
        parts = item.get(field)
        known = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
        text = "".join(str(part.get("text") or "") for part in known)
        if text:
            return text
    return ""


def _part(part: dict[str, Any]) -> dict[str, Any] | None:
    """One part of a content; None where a chat has none such."""
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text"):
        return {"type": "text", "text": str(part.get("text") or part.get("refusal") or "")}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        picture = {"url": part["image_url"]}
        if part.get("detail") in ("low", "high", "auto"):
            picture["detail"] = part["detail"]
        return {"type": "image_url", "image_url": picture}
    if kind == "input_audio" and isinstance(part.get("input_audio"), dict):
        return {"type": "input_audio", "input_audio": part["input_audio"]}
    if kind == "input_file" and (part.get("file_data") or part.get("file_id")):
        return {"type": "file", "file": {name: part[name] for name in ("file_data", "file_id", "filename") if part.get(name)}}
    return None


def _joined(first: Any, second: Any) -> Any:
    """Two contents as one: a text, or parts where one of them has some."""
    if not first or not second:
        return first or second
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: Any) -> list[dict[str, Any]]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _marked(content: Any) -> Any:
    """What a developer says in the middle of a talk."""
    if isinstance(content, str):
        return f"<developer>\n{content}\n</developer>"
    return [{"type": "text", "text": "<developer>"}, *content, {"type": "text", "text": "</developer>"}]


def _plain(parts: list[dict[str, Any]]) -> Any:
    """Texts alone as one text, which every backend understands."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _found(tools: Any) -> str:
    """What a search for tools found; the tools themselves are among the request's own."""
    names = [str(tool.get("name")) for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    return "These tools can be called now: " + ", ".join(names) if names else "No tools were found."
