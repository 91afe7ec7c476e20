"""A request of Anthropic's Messages API, told as one of chat/completions (docs.anthropic.com, Messages, 2026-11). Pure.

What chats cannot say is left out with a warning. Only what is no request of this API at all is refused, and the refusal names
the place as Anthropic does: `messages.0.content.1: ...`.
"""

from __future__ import annotations

from typing import Any

from iop.adapters.wire.messages_blocks import billing, chat_messages
from iop.adapters.wire.messages_fields import is_object, refuse
from iop.adapters.wire.translated import Translated, choice_left_out, fields_left_out, kept

# Fields that are told otherwise, or that say nothing to a backend which is not Anthropic's own.
_SILENT = frozenset(("model", "messages", "system", "tools", "tool_choice", "stop_sequences", "metadata", "thinking",
                     "output_config", "output_format", "service_tier", "context_management", "cache_control", "betas",
                     "inference_geo", "speed"))
_LEFT_OUT = frozenset(("mcp_servers", "container"))
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}

# Tokens of thought that a client allows, as the efforts that chat/completions knows.
_EFFORTS = ((4_000, "low"), (16_000, "medium"))
_MOST = "high"
_KNOWN_EFFORTS = frozenset(("minimal", "low", "medium", "high"))

# What the servers that people run themselves have of the API: llama.cpp passes over the rest in silence, vLLM refuses it.
_PLAIN_BLOCKS = frozenset(("text", "image", "tool_use", "tool_result", "thinking", "redacted_thinking"))
_PLAIN_ROLES = frozenset(("user", "assistant"))


def needs_translation(body: dict[str, Any]) -> bool:
    """Whether a request holds what backends with a Messages API of their own pass over or refuse, but for Anthropic's own:
    tools that run there, documents, system messages in the middle, Claude Code's billing line.
    """
    return (any(isinstance(tool, dict) and tool.get("type") not in (None, "custom") for tool in _list(body.get("tools")))
            or any(billing(block) for block in _list(body.get("system")))
            or any(not _is_plain(message) for message in _list(body.get("messages"))))


def _is_plain(message: Any) -> bool:
    if not isinstance(message, dict):
        return True                      # nothing that telling it otherwise could mend
    blocks = [block.get("type") for block in _list(message.get("content")) if isinstance(block, dict)]
    return (isinstance(message.get("role"), str) and message["role"] in _PLAIN_ROLES
            and all(isinstance(kind, str) and kind in _PLAIN_BLOCKS for kind in blocks))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def to_chat(body: dict[str, Any], model: str) -> Translated:
    """Raises InvalidRequest. Fields that are not the Messages API's own, such as top_k and min_p, travel on as they are."""
    warnings: list[str] = []
    chat = kept({name: value for name, value in body.items() if name not in _SILENT | _LEFT_OUT})
    chat |= {"model": model, "messages": chat_messages(body, warnings)}
    chat |= kept({"stop": _stops(body), "user": _user(body), "reasoning_effort": _effort(body),
                  "response_format": _format(body)})
    if _thoughtless(body):
        chat["chat_template_kwargs"] = {"enable_thinking": False} | _template_kwargs(body)
    tools = _tools(body, warnings)
    if tools:
        chat |= {"tools": tools, **_choice(body, tools, warnings)}
    warnings += fields_left_out(body, _LEFT_OUT)
    return Translated(chat, tuple(dict.fromkeys(warnings)))


def _stops(body: dict[str, Any]) -> list[str] | None:
    stops = body.get("stop_sequences")
    if stops is not None and not (isinstance(stops, list) and all(isinstance(stop, str) for stop in stops)):
        refuse("stop_sequences", "must be a list of texts")
    return stops or None


def _user(body: dict[str, Any]) -> str | None:
    user = is_object(body.get("metadata") or {}, "metadata").get("user_id")
    return user if isinstance(user, str) else None


# --- how to think, and the form of the answer

def _thoughtless(body: dict[str, Any]) -> bool:
    """Whether the client asks for no thoughts; what models that can do without them read is in their chat template."""
    return bool(is_object(body.get("thinking") or {}, "thinking").get("type") == "disabled")


def _template_kwargs(body: dict[str, Any]) -> dict[str, Any]:
    told = body.get("chat_template_kwargs")
    return told if isinstance(told, dict) else {}


def _effort(body: dict[str, Any]) -> str | None:
    """The client's own word, where it has one; else what its budget of thought amounts to."""
    effort = is_object(body.get("output_config") or {}, "output_config").get("effort")
    if isinstance(effort, str):
        return effort if effort in _KNOWN_EFFORTS else _MOST
    thinking = is_object(body.get("thinking") or {}, "thinking")
    budget = thinking.get("budget_tokens")
    if thinking.get("type") != "enabled" or not isinstance(budget, int):
        return None
    return next((word for most, word in _EFFORTS if budget <= most), _MOST)


def _format(body: dict[str, Any]) -> dict[str, Any] | None:
    asked = is_object(body.get("output_config") or {}, "output_config").get("format") or body.get("output_format")
    if asked is None:
        return None
    schema = is_object(asked, "output_config.format").get("schema")
    if asked.get("type") != "json_schema" or not isinstance(schema, dict):
        refuse("output_config.format", "must be a json_schema with its schema")
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


# --- tools

def _tools(body: dict[str, Any], warnings: list[str]) -> list[dict[str, Any]]:
    told = body.get("tools")
    if told is not None and not isinstance(told, list):
        refuse("tools", "must be a list")
    found = []
    for place, tool in enumerate(told or ()):
        is_object(tool, f"tools.{place}")
        name, kind = tool.get("name"), tool.get("type")
        if kind not in (None, "custom"):
            warnings.append(f"The tool {str(name or kind)[:64]!r} was left out: only Anthropic has a {str(kind)[:64]!r}.")
            continue
        if not isinstance(name, str) or not name:
            refuse(f"tools.{place}.name", "must be a text")
        found.append({"type": "function", "function": {"name": name} | kept({
            "description": tool.get("description"), "strict": tool.get("strict")}) | {
                "parameters": is_object(tool.get("input_schema") or _NO_PARAMETERS, f"tools.{place}.input_schema")}})
    return found


def _choice(body: dict[str, Any], tools: list[dict[str, Any]], warnings: list[str]) -> dict[str, Any]:
    """`tool_choice` and `parallel_tool_calls` of the chat."""
    choice = body.get("tool_choice")
    if choice is None:
        return {}
    kind = is_object(choice, "tool_choice").get("type")
    told: dict[str, Any] = {"parallel_tool_calls": False} if choice.get("disable_parallel_tool_use") is True else {}
    if isinstance(kind, str) and kind in _CHOICES:
        return told | {"tool_choice": _CHOICES[kind]}
    if kind != "tool":
        refuse("tool_choice.type", "must be one of auto, any, tool and none")
    name = choice.get("name")
    if any(tool["function"]["name"] == name for tool in tools):
        return told | {"tool_choice": {"type": "function", "function": {"name": name}}}
    warnings.append(choice_left_out(name))
    return told
