"""That a prompt is too long, in the words that Anthropic's clients understand. Pure.

Claude Code compacts by itself where a refusal says `prompt is too long`; where that has the form `N tokens > M maximum` it
knows by how much (read in versions 2.1.197 and 2.1.332).
"""

from __future__ import annotations

import re
from typing import Any

# llama.cpp, SGLang: "request (2019 tokens) exceeds the available context size (512 tokens)", "The input (9000 tokens) is
# longer than the model's context length (8192 tokens)"; others: "Input length 131393 exceeds ... length of 131040 tokens".
_COUNTS = re.compile(r"\((\d+) tokens\)\D*\((\d+) tokens\)|length \(?(\d+)\)? exceeds \D*(\d+)")
# vLLM: "maximum context length is 4096 tokens. However, ... your prompt contains at least 5000 input tokens"
_LIMIT_FIRST = re.compile(
    r"context length is (\d+) tokens.*?(?:contains(?: at least)?|has|resulted in) (\d+)(?: input)? tokens", re.DOTALL)


def prompt_too_long(message: str, error: dict[str, Any]) -> str:
    """`message`, and what stands beside it in a backend's error object, for a client of the Messages API."""
    counts = _counts(message, error)
    if counts is None:
        return f"prompt is too long: {message}"
    prompt, limit = counts
    if prompt <= limit:                  # it is the answer that was to have more than what is left
        return message
    return f"prompt is too long: {prompt} tokens > {limit} maximum. {message}"


def _counts(message: str, error: dict[str, Any]) -> tuple[int, int] | None:
    """The prompt's tokens and the most that may be; None where they are not told."""
    prompt, limit = error.get("n_prompt_tokens"), error.get("n_ctx")     # llama.cpp
    if isinstance(prompt, int) and isinstance(limit, int):
        return prompt, limit
    if (found := _COUNTS.search(message)) is not None:
        prompt, limit = [int(number) for number in found.groups() if number is not None]
        return prompt, limit
    if (found := _LIMIT_FIRST.search(message)) is not None:
        return int(found[2]), int(found[1])
    return None
