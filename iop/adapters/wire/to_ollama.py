"""OpenAI's requests told in Ollama's native API. Pure.

Formats: docs/api.md of ollama/ollama, as its Python client 0.6.3 has them (read 2026-12).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from iop.errors import InvalidRequest

# OpenAI's name -> Ollama's, inside `options`.
_OPTIONS = {"temperature": "temperature", "top_p": "top_p", "seed": "seed", "frequency_penalty": "frequency_penalty",
            "presence_penalty": "presence_penalty", "max_tokens": "num_predict", "max_completion_tokens": "num_predict",
            "top_k": "top_k", "min_p": "min_p", "repeat_penalty": "repeat_penalty"}
_UNSAID = ("logit_bias", "logprobs", "top_logprobs", "prediction", "audio")


def request_body(model: str, messages: Any, options: Mapping[str, Any], keep_alive: str | int | None) -> dict[str, Any]:
    """A streaming /api/chat."""
    body: dict[str, Any] = {"model": model, "messages": messages, "stream": True}
    if options:
        body["options"] = dict(options)
    if keep_alive is not None:
        body["keep_alive"] = keep_alive
    return body


def from_openai(body: Mapping[str, Any], model: str, options: Mapping[str, Any],
                keep_alive: str | int | None) -> dict[str, Any]:
    """A chat/completions body as one of /api/chat. Raises InvalidRequest for what Ollama cannot do."""
    if body.get("n", 1) not in (1, None):
        raise InvalidRequest("This backend gives one answer; `n` must be 1.")
    wanted = dict(options)
    wanted |= {theirs: body[ours] for ours, theirs in _OPTIONS.items() if body.get(ours) is not None}
    if body.get("stop"):
        wanted["stop"] = [body["stop"]] if isinstance(body["stop"], str) else body["stop"]
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise InvalidRequest("`messages` must be a list of messages.")
    asked = request_body(model, to_messages(messages), wanted, keep_alive)
    asked["stream"] = body.get("stream") is True
    if body.get("tools") and body.get("tool_choice") != "none":
        asked["tools"] = body["tools"]
    template = body.get("chat_template_kwargs")
    if body.get("reasoning_effort") == "none":
        asked["think"] = False                   # other efforts are not told: a model that cannot think would be refused
    elif isinstance(template, dict) and isinstance(template.get("enable_thinking"), bool):
        asked["think"] = template["enable_thinking"]
    wish = body.get("response_format")
    if isinstance(wish, dict) and wish.get("type") == "json_object":
        asked["format"] = "json"
    elif isinstance(wish, dict) and wish.get("type") == "json_schema":
        schema = wish.get("json_schema")
        asked["format"] = (schema.get("schema") if isinstance(schema, dict) else None) or "json"
    return asked


def unsaid(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Sentences about what a chat/completions body asks for and Ollama has no word for."""
    left = [f"`{name}` was left out: Ollama does not know it." for name in _UNSAID if body.get(name)]
    if body.get("tools") and body.get("tool_choice") not in (None, "auto", "none"):
        left.append("`tool_choice` was left out: at Ollama the model alone chooses.")
    return tuple(left)


def to_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """OpenAI's messages as Ollama's: text apart from images, arguments as objects, tool answers by name."""
    names: dict[str, str] = {}
    found = []
    for message in messages:
        told: dict[str, Any] = {"role": "system" if message.get("role") == "developer" else message.get("role", "user")}
        told |= _content(message.get("content"))
        thought = message.get("reasoning_content") or message.get("reasoning")
        if isinstance(thought, str) and thought:
            told["thinking"] = thought
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            told["tool_calls"] = [_call(call, names) for call in calls]
        if message.get("role") == "tool" and str(message.get("tool_call_id")) in names:
            told["tool_name"] = names[str(message["tool_call_id"])]
        found.append(told)
    return found


def _call(call: Any, names: dict[str, str]) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise InvalidRequest("A tool call must be an object with a `function`.")
    names[str(call.get("id"))] = function.get("name", "")
    try:
        arguments = msgspec.json.decode(function.get("arguments") or "{}")
    except (msgspec.DecodeError, TypeError):
        raise InvalidRequest("A tool call's `arguments` must be a JSON object as text.") from None
    return {"function": {"name": function.get("name", ""), "arguments": arguments}}


def _content(content: Any) -> dict[str, Any]:
    if content is None:
        return {"content": ""}
    if isinstance(content, str):
        return {"content": content}
    texts: list[str] = []
    images: list[str] = []
    for part in content if isinstance(content, list) else [content]:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            texts.append(str(part.get("text", "")))
        elif kind == "image_url":
            images.append(_image(part.get("image_url")))
        else:
            raise InvalidRequest(f"This backend takes text and images; a message holds {kind!r}.")
    return {"content": "\n".join(texts)} | ({"images": images} if images else {})


def _image(value: Any) -> str:
    url = value.get("url") if isinstance(value, dict) else value
    if not isinstance(url, str) or not url.startswith("data:") or ";base64," not in url:
        raise InvalidRequest("An image must be a data: URL in base64; this node fetches nothing by itself.")
    return url.partition(";base64,")[2]
