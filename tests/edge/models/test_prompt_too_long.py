"""Refusals of real servers in the words that Claude Code reads."""

from __future__ import annotations

import re
from typing import Any

import pytest

from iop.edge.models.prompt_too_long import prompt_too_long

CLAUDE_READS = re.compile(r"prompt is too long[^0-9]*(\d+)\s*tokens?\s*>\s*(\d+)", re.IGNORECASE)
VLLM = ("This model's maximum context length is 4096 tokens. However, you requested {} output tokens and your prompt "
        "contains at least {} input tokens, for a total of at least {} tokens.")


@pytest.mark.parametrize(("message", "error", "counts"), [
    ("request (2019 tokens) exceeds the available context size (512 tokens), try increasing it", {}, ("2019", "512")),
    ("the request exceeds the available context size", {"n_prompt_tokens": 18018, "n_ctx": 2048}, ("18018", "2048")),
    ("The input (9000 tokens) is longer than the model's context length (8192 tokens).", {}, ("9000", "8192")),
    ("Input length 131393 exceeds the maximum allowed input length of 131040 tokens.", {}, ("131393", "131040")),
    ("Input length (265330) exceeds model's maximum context length (262144).", {}, ("265330", "262144")),
    (VLLM.format(0, 4097, 4097), {"param": "input_tokens"}, ("4097", "4096")),
    ("This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.", {},
     ("130000", "128000"))])
def test_counts_are_told_as_claude_reads_them(message: str, error: dict[str, Any], counts: tuple[str, str]) -> None:
    told = prompt_too_long(message, error)
    found = CLAUDE_READS.search(told)
    assert found is not None and found.groups() == counts and told.endswith(message)


@pytest.mark.parametrize("message", ["This model's maximum context length is 1024 tokens.", "context window exceeded"])
def test_without_counts_the_words_alone_are_told(message: str) -> None:
    assert prompt_too_long(message, {}) == f"prompt is too long: {message}"
    assert CLAUDE_READS.search(prompt_too_long(message, {})) is None


def test_an_answer_that_has_no_room_is_no_prompt_that_is_too_long() -> None:
    assert prompt_too_long(VLLM.format(4000, 97, 4097), {}) == VLLM.format(4000, 97, 4097)
