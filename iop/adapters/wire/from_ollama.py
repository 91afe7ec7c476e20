"""Requests of Ollama's native API, told in OpenAI's, so that its clients can use any backend. Pure.

Formats: docs/api.md of ollama/ollama, as its Python client 0.6.3 has them (read 2026-12).
"""

from __future__ import annotations

from typing import Any

import msgspec

from iop.adapters.wire.translated import Translated
from iop.errors import InvalidRequest
from iop.modelapis import COMPLETIONS, EMBEDDINGS, OLLAMA_EMBED, OLLAMA_GENERATE

# Ollama's option -> the name that llama.cpp's server and vLLM have for it; what stands nowhere else is OpenAI's.
_OPTIONS = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p", "typical_p": "typical_p",
            "seed": "seed", "stop": "stop", "presence_penalty": "presence_penalty",
            "frequency_penalty": "frequency_penalty", "num_predict": "max_tokens"}
_IMAGES = {"iVBOR": "png", "/9j/": "jpeg", "R0lGO": "gif", "UklGR": "webp"}     # how their base64 begins


def to_openai(api: str, body: dict[str, Any], model: str) -> Translated:
    """Raises InvalidRequest for what is no request of that API, or what no backend of another kind can do."""
    if api == OLLAMA_EMBED:
        return _embed(body, model)
    return _generate(body, model) if api == OLLAMA_GENERATE else _chat(body, model)


def _chat(body: dict[str, Any], model: str) -> Translated:
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise InvalidRequest("`messages` must be a list of messages.")
    if not messages:
        raise InvalidRequest("A chat without messages loads or unloads a model; this backend has its own always loaded.")
    wishes, warnings = _wishes(body)
    fields = {"model": model, "messages": _Messages().as_chat(messages)} | wishes
    if isinstance(body.get("tools"), list) and body["tools"]:
        fields["tools"] = body["tools"]
    return Translated(fields, warnings)


def _generate(body: dict[str, Any], model: str) -> Translated:
    prompt = body.get("prompt")
    if not isinstance(prompt, str) or not prompt:
        raise InvalidRequest("`prompt` must be a text; without one Ollama loads a model, and here it is loaded always.")
    wishes, warnings = _wishes(body)
    warnings += tuple(f"`{name}` was left out: only Ollama has it." for name in ("context", "template") if body.get(name))
    if body.get("raw") is True or body.get("suffix"):
        fields = {"model": model, "prompt": prompt} | wishes
        if body.get("suffix"):
            fields["suffix"] = body["suffix"]
        return Translated(fields, warnings, api=COMPLETIONS)
    system = [{"role": "system", "content": body["system"]}] if body.get("system") else []
    messages = [*system, {"role": "user", "content": prompt, "images": body.get("images")}]
    return Translated({"model": model, "messages": _Messages().as_chat(messages)} | wishes, warnings)


def _embed(body: dict[str, Any], model: str) -> Translated:
    texts = body.get("input")
    if not isinstance(texts, str) and not (isinstance(texts, list) and all(isinstance(text, str) for text in texts)):
        raise InvalidRequest("`input` must be a text or a list of texts.")
    fields = {"model": model, "input": texts, "encoding_format": "float"}
    if body.get("dimensions") is not None:
        fields["dimensions"] = body["dimensions"]
    left = [f"`{name}` was left out: the backend decides it." for name in ("truncate", "keep_alive", "options")
            if body.get(name)]
    return Translated(fields, tuple(left), api=EMBEDDINGS)


def _wishes(body: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What chats and completions have in common beside their input, and what had to be left out."""
    options = body.get("options")
    if options is not None and not isinstance(options, dict):
        raise InvalidRequest("`options` must be an object.")
    fields, warnings = _sampling(options or {})
    fields["stream"] = body.get("stream") is not False
    fields |= _format(body.get("format"))
    think = body.get("think")
    if isinstance(think, str):
        fields["reasoning_effort"] = think
    elif think is not None:
        fields["chat_template_kwargs"] = {"enable_thinking": bool(think)}
    if body.get("keep_alive") is not None:
        warnings.append("`keep_alive` was left out: the backend decides how long it keeps its model.")
    for name in ("logprobs", "top_logprobs"):
        if body.get(name) is not None:
            fields[name] = body[name]
    return fields, tuple(warnings)


def _sampling(options: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    fields: dict[str, Any] = {}
    warnings: list[str] = []
    for name, value in options.items():
        if name == "repeat_penalty":
            fields |= {"repeat_penalty": value, "repetition_penalty": value}     # llama.cpp's name, and vLLM's
        elif name == "num_predict" and isinstance(value, int) and value < 0:
            pass                                                                 # no limit, or what the context has room for
        elif name in _OPTIONS:
            fields[_OPTIONS[name]] = value
        else:
            warnings.append(f"options: `{str(name)[:40]}` was left out; it is set where the backend is started.")
    return fields, warnings


def _format(wanted: Any) -> dict[str, Any]:
    if wanted == "json":
        return {"response_format": {"type": "json_object"}}
    if isinstance(wanted, dict) and wanted:
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": wanted}}}
    return {}


class _Messages:
    """Calls have no ids at Ollama: they are counted, and a tool's answer belongs to the first open call of its name."""

    def __init__(self) -> None:
        self._count = 0
        self._open: list[tuple[str, str]] = []       # (name, id)

    def as_chat(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [self._message(message) for message in messages]

    def _message(self, message: dict[str, Any]) -> dict[str, Any]:
        told = {"role": message.get("role", "user"), "content": _content(message)}
        calls = message.get("tool_calls")
        if isinstance(calls, list) and calls:
            told["tool_calls"] = [self._call(call) for call in calls]
        if message.get("thinking"):
            told["reasoning_content"] = message["thinking"]
        if told["role"] == "tool":
            name = message.get("tool_name") or message.get("name")
            told["tool_call_id"] = self._answered(message.get("tool_call_id"), name)
        return told

    def _call(self, call: Any) -> dict[str, Any]:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise InvalidRequest("A tool call must be an object with a `function` that has a name.")
        call_id = call.get("id") or f"call_{self._count}"
        self._count += 1
        self._open.append((function["name"], call_id))
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
        return {"id": call_id, "type": "function", "function": {"name": function["name"], "arguments": text}}

    def _answered(self, call_id: Any, name: Any) -> str:
        for entry in self._open:
            if entry[1] == call_id or (call_id is None and name in (None, entry[0])):
                self._open.remove(entry)
                return entry[1]
        return str(call_id or name or "call_unknown")


def _content(message: dict[str, Any]) -> Any:
    text, images = message.get("content") or "", message.get("images")
    if not isinstance(images, list) or not images:
        return text
    if not all(isinstance(image, str) for image in images):
        raise InvalidRequest("`images` must be a list of base64 texts.")
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    return parts + [{"type": "image_url", "image_url": {"url": _data_url(image)}} for image in images]


def _data_url(image: str) -> str:
    if image.startswith("data:"):
        return image
    kind = next((kind for begin, kind in _IMAGES.items() if image.startswith(begin)), "png")
    return f"data:image/{kind};base64,{image}"
