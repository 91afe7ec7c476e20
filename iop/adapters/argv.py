"""From a profile and a run's input to what a program is started with. Pure: an argument stays one argument."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from iop.errors import ConfigError, InvalidRequest
from iop.proto.run_pb2 import RunRequest

PROMPT, WORKDIR, SESSION = "{prompt}", "{workdir}", "{session}"
PLACEHOLDERS = (PROMPT, WORKDIR, SESSION)
ARGV_BYTES = 128 * 1024          # Linux takes one argument of at most 128 KiB; all of ours stay under that together
PROMPT_BYTES = 32 * 1024         # a longer prompt goes by standard input

# What can make a program run other code than its own, or speak for IOP.
_DENIED = re.compile(r"LD_.*|DYLD_.*|PYTHON.*|NODE_OPTIONS|BASH_ENV|ENV|GIT_SSH.*|IOP_.*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def check_argv(argv: Sequence[str]) -> None:
    """Raises ConfigError."""
    if not argv or not argv[0]:
        raise ConfigError("argv must name a program: a list of text, the program first.")
    if argv[0] in PLACEHOLDERS:
        raise ConfigError("argv: the program itself cannot be a placeholder.")
    if "/" in argv[0] and not argv[0].startswith("/"):
        raise ConfigError(f"argv: {argv[0][:200]!r} is neither an absolute path nor a bare name to look up on PATH.")
    for element in argv:
        if "\x00" in element:
            raise ConfigError("argv must not contain NUL characters.")
        for placeholder in PLACEHOLDERS:
            if placeholder in element and element != placeholder:
                raise ConfigError(f"argv: {placeholder} replaces a whole element and cannot be part of {element[:100]!r}; "
                                  f"allowed placeholders, each an element of its own: {', '.join(PLACEHOLDERS)}.")


def check_environment(env: Mapping[str, str]) -> None:
    """Raises ConfigError."""
    for name, value in env.items():
        if not _NAME.fullmatch(name) or "\x00" in value:
            raise ConfigError(f"env: {name[:100]!r} is not a variable; allowed are names of letters, digits and _.")
        if _DENIED.fullmatch(name):
            raise ConfigError(f"env: {name} may not be set for a program; denied are LD_*, DYLD_*, PYTHON*, NODE_OPTIONS, "
                              "BASH_ENV, ENV, GIT_SSH* and IOP_*; any other name is allowed.")


def fill(argv: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """argv with whole elements replaced. Raises InvalidRequest for a value that could turn into an option, and for size."""
    filled: list[str] = []
    for element in argv:
        value = values.get(element) if element in PLACEHOLDERS else None
        if value is None:
            filled.append(element)
            continue
        what = element.strip("{}")
        if value.startswith("-") and filled[-1] != "--":
            raise InvalidRequest(f"The {what} begins with '-', which the program could take for an option; have the profile "
                                 f"say '--' before {element}, or send the prompt by standard input.")
        filled.append(value)
    if any("\x00" in element for element in filled):
        raise InvalidRequest("A program's argument cannot contain a NUL character; send such a prompt by standard input.")
    size = sum(len(element.encode("utf-8", "surrogatepass")) + 1 for element in filled)
    if size > ARGV_BYTES:
        raise InvalidRequest(f"The program's arguments have {size} bytes, more than the limit of {ARGV_BYTES}.")
    return tuple(filled)


def check_prompt_argument(prompt: str) -> None:
    """Raises InvalidRequest."""
    size = len(prompt.encode("utf-8", "surrogatepass"))
    if size > PROMPT_BYTES:
        raise InvalidRequest(f"The prompt has {size} bytes; as an argument it may have {PROMPT_BYTES}. "
                             "Let the profile say `prompt: stdin`.")


# Where each model API has what is asked.
_ASKED_IN = {"": "messages", "chat/completions": "messages", "messages": "messages", "api/chat": "messages",
             "responses": "input", "completions": "prompt", "api/generate": "prompt"}


def prompt_of(request: RunRequest) -> str:
    """The text for a program: the prompt, or the last user message. Raises InvalidRequest."""
    kind = request.WhichOneof("input")
    if kind == "prompt":
        return request.prompt
    if kind == "messages":
        return _last_user_message(_json(request.messages))
    if kind != "body":
        raise InvalidRequest("The run has no input; give a prompt, messages or a body.")
    body = _json(request.body)
    if isinstance(body, dict):
        field = _ASKED_IN.get(request.api, "")
        found = body.get(field)
        if isinstance(found, str) and field != "messages":
            return found
        if isinstance(found, list):
            return found[0] if len(found) == 1 and isinstance(found[0], str) else _last_user_message(found)
    raise InvalidRequest("A program takes a prompt: plain text, or messages of which the last by the user is it.")


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        raise InvalidRequest("The run's messages are not JSON.") from None


def _last_user_message(messages: Any) -> str:
    for message in reversed(messages if isinstance(messages, list) else []):
        if isinstance(message, dict) and message.get("role") == "user":
            return _text(message.get("content"))
    raise InvalidRequest("There is no message by the user; the last one is what the program is asked.")


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    if not parts or not all(isinstance(text, str) for text in parts):
        raise InvalidRequest("A program takes text only; the user's message holds something else.")
    return "\n".join(parts)
