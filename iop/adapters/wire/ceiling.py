"""A request for longer answers than its backend has room for. Pure.

Clients of Anthropic's API must name the most tokens that an answer may have, and name what their models can do: Claude Code
32,000. vLLM and SGLang refuse that where the context has not so much left, though they would stop at its end by themselves.
"""

from __future__ import annotations

import re

from iop.adapters.wire.translated import Translated

_CEILINGS = ("max_tokens", "max_completion_tokens")
_WARNING = "`{}` was left out: the model's context has not so much room left."

# vLLM: "max_tokens=5000 cannot be greater than max_model_len=1024", "maximum context length is 4096 tokens. However, you
# requested 4000 output tokens"; OpenAI of old: "(1224 in the messages, 8000 in the completion)"; SGLang: "for the
# completion".
_ANSWER = re.compile(rb"max_tokens|max_completion_tokens|[1-9]\d* output tokens|(?:in|for) the completion")
_CONTEXT = re.compile(rb"max_model_len|context length", re.IGNORECASE)


def lacks_room(status: int, refusal: bytes) -> bool:
    """Whether a refusal may be of the length of the answer. A wrong guess costs one more refusal."""
    return status in (400, 422) and _CONTEXT.search(refusal) is not None and _ANSWER.search(refusal) is not None


def without_ceiling(told: Translated) -> Translated | None:
    """The same without the most tokens that the answer may have; None where it names none.

    Where it was refused for them, the room that is left is less, so that the answer still cannot have more.
    """
    named = [name for name in _CEILINGS if name in told.body]
    if not named:
        return None
    body = {name: value for name, value in told.body.items() if name not in _CEILINGS}
    return told._replace(body=body, warnings=(*told.warnings, _WARNING.format(named[0])))
