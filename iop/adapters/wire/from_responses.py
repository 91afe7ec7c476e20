"""A request of the Responses API, told as one of chat/completions. Pure.

What chats cannot say is left out with a warning. Only what is no request of this API at all is refused.
"""

from __future__ import annotations

from typing import Any

from iop import toolnames
from iop.adapters.wire.responses_input import messages_of
from iop.adapters.wire.translated import Translated, choice_left_out, fields_left_out, kept
from iop.errors import InvalidRequest
from iop.toolnames import CUSTOM, CUSTOM_ARGUMENT, Tool, flat_name

# What is IOP's own business (it stores, waits and finds again), or says nothing to a chat.
_SILENT = frozenset(("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text",
                     "max_output_tokens", "include", "store", "background", "metadata", "client_metadata", "stream_options",
                     "previous_response_id", "truncation"))
_LEFT_OUT = frozenset(("conversation", "prompt", "max_tool_calls", "context_management", "moderation", "top_logprobs"))
# What local backends with this API know; llama.cpp drops other tools without a word, and refuses other items.
_PLAIN_ITEMS = frozenset(("message", "function_call", "function_call_output", "reasoning"))
_OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
_LOGPROBS = "message.output_text.logprobs"


def to_chat(body: dict[str, Any], model: str) -> Translated:
    """Raises InvalidRequest that names the field. Fields that are not the Responses API's travel on as they are."""
    tools, warnings = toolnames.read_tools(_checked(body))
    messages, unsaid = messages_of(body)
    warnings += unsaid
    warnings += fields_left_out(body, _LEFT_OUT)
    if _LOGPROBS in (body.get("include") or ()):
        warnings.append("The logprobs were left out: they are not told of a chat.")
    chat = kept({name: value for name, value in body.items() if name not in _SILENT | _LEFT_OUT})
    chat |= {"model": model, "messages": messages, **_wishes(body)}
    offered = _offered(tools, body.get("tool_choice"), warnings)
    if offered:
        chat |= offered
        if isinstance(body.get("parallel_tool_calls"), bool):
            chat["parallel_tool_calls"] = body["parallel_tool_calls"]
    return Translated(chat, tuple(dict.fromkeys(warnings)))


def needs_translation(body: dict[str, Any]) -> bool:
    """Whether a request has tools or items that backends with a Responses API of their own pass over or refuse, unless they
    are OpenAI's: all but functions and what belongs to them."""
    tools, items = body.get("tools"), body.get("input")
    return (any(not isinstance(tool, dict) or tool.get("type") != "function" for tool in _list(tools))
            or not all(_is_plain(item) for item in _list(items)))


def _is_plain(item: Any) -> bool:
    if not isinstance(item, dict):
        return True                  # nothing that telling it otherwise could mend
    kind = item.get("type", "message")
    if kind == "reasoning" and not isinstance(item.get("content"), list):
        return False                 # a thought that came as a summary; llama.cpp refuses it
    return isinstance(kind, str) and kind in _PLAIN_ITEMS and not item.get("namespace")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _checked(body: dict[str, Any]) -> dict[str, Any]:
    for name, kind, word in (("tools", list, "a list"), ("reasoning", dict, "an object"), ("text", dict, "an object"),
                             ("include", list, "a list"), ("stream", bool, "true or false"),
                             ("max_output_tokens", int, "a whole number")):
        if body.get(name) is not None and not isinstance(body[name], kind):
            raise InvalidRequest(f"`{name}` must be {word}.")
    return body


def _wishes(body: dict[str, Any]) -> dict[str, Any]:
    """What is asked of the answer."""
    reasoning, text = body.get("reasoning") or {}, body.get("text") or {}
    return kept({"reasoning_effort": reasoning.get("effort"), "verbosity": text.get("verbosity"),
                 "response_format": _format(text.get("format")), "max_completion_tokens": body.get("max_output_tokens")})


def _format(asked: Any) -> dict[str, Any] | None:
    if asked is None:
        return None
    if not isinstance(asked, dict):
        raise InvalidRequest("`text.format` must be an object.")
    if asked.get("type") == "json_schema":
        return {"type": "json_schema", "json_schema": kept({
            name: asked.get(name) for name in ("name", "description", "schema", "strict")})}
    return None if asked.get("type") == "text" else {"type": asked.get("type")}


def _offered(tools: dict[str, Tool], choice: Any, warnings: list[str]) -> dict[str, Any]:
    """`tools` and `tool_choice` of the chat; empty where no tool is left."""
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed = choice.get("tools")
        named = {_flat_of(one) for one in allowed if isinstance(one, dict)} if isinstance(allowed, list) else set()
        tools, choice = {flat: tool for flat, tool in tools.items() if flat in named}, choice.get("mode")
    if not tools:
        return {}
    offered: dict[str, Any] = {"tools": [_function(tool) for tool in tools.values()]}
    if isinstance(choice, str):
        offered["tool_choice"] = choice
    elif isinstance(choice, dict):
        flat = _flat_of(choice)
        if flat in tools:
            offered["tool_choice"] = {"type": "function", "function": {"name": flat}}
        else:
            warnings.append(choice_left_out(flat))
    elif choice is not None:
        raise InvalidRequest("`tool_choice` must be a word or an object.")
    return offered


def _flat_of(named: dict[str, Any]) -> str:
    return flat_name(str(named.get("namespace") or ""), str(named.get("name") or named.get("type") or ""))


def _function(tool: Tool) -> dict[str, Any]:
    spec = tool.spec
    function: dict[str, Any] = {"name": tool.flat}
    description = spec.get("description")
    if tool.kind == CUSTOM:
        function |= {"description": _of_custom(description, spec.get("format")), "strict": None, "parameters": {
            "type": "object", "properties": {CUSTOM_ARGUMENT: {"type": "string", "description": "The tool's whole input."}},
            "required": [CUSTOM_ARGUMENT], "additionalProperties": False}}
    else:
        function |= {"description": description, "parameters": spec.get("parameters") or _OBJECT,
                     "strict": spec.get("strict")}
    return {"type": "function", "function": kept(function)}


def _of_custom(description: Any, asked: Any) -> str:
    """Its description; a grammar, which no chat can enforce, is at least told to the model."""
    told = str(description or "")
    if isinstance(asked, dict) and asked.get("definition"):
        told += f"\n\nThe input must follow this grammar ({asked.get('syntax', 'lark')}):\n{asked['definition']}"
    return told.strip()
