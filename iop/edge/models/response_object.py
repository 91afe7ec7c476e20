"""The `response` object of the Responses API: what it echoes of its request, its usage, its error. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from iop.edge.models.ending import Ending
from iop.edge.models.foreign_json import read_as
from iop.events import json_encode
from iop.proto import run_pb2
from iop.records import RunRecord

PREFIX = "resp_"
# What is echoed, and what it is where the request does not say.
_ECHOED: dict[str, Any] = {
    "instructions": None, "max_output_tokens": None, "max_tool_calls": None, "metadata": {}, "parallel_tool_calls": True,
    "previous_response_id": None, "prompt_cache_key": None, "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None, "service_tier": "default", "store": True, "temperature": None,
    "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_logprobs": 0, "top_p": None,
    "truncation": "disabled", "user": None, "background": False}
# OpenAI's words for why an answer is no whole one, by chat's finish_reason.
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_STATES = {"queued": "queued", "placed": "queued", "completed": "completed", "cancelled": "cancelled", "failed": "failed",
           "unknown": "failed"}
# The codes that codex acts upon; all others are told as the server's fault, of which it tries again.
_KNOWN = frozenset(("context_length_exceeded", "insufficient_quota", "usage_not_included", "rate_limit_exceeded"))
_OURS = {"invalid_request": "invalid_prompt", "too_large": "invalid_prompt", "queue_full": "rate_limit_exceeded",
         "no_such_target": "invalid_prompt"}
_BY_STATUS = {400: "invalid_prompt", 413: "invalid_prompt", 422: "invalid_prompt", 429: "rate_limit_exceeded"}


class _Response(msgspec.Struct, frozen=True):
    error: dict[str, Any] | None = None


class _Failed(msgspec.Struct):
    response: _Response = _Response()


_failed = msgspec.json.Decoder(_Failed).decode


def response_id(run_id: str) -> str:
    return PREFIX + run_id


class ResponseObject:
    """What all the `response` objects of one run share; `as_json()` is one of them."""

    def __init__(self, record: RunRecord, asked: dict[str, Any], model: str) -> None:
        """`asked` is the request's body as its client sent it."""
        self.id = response_id(record.run_id)
        self._created_s = record.created_us // 1_000_000
        echoed = {name: default if asked.get(name) is None else asked[name] for name, default in _ECHOED.items()}
        self._echo = json_encode({"model": model, **echoed})[1:]     # made once: the tools of an agent have 20 KB

    def as_json(self, status: str, output: list[dict[str, Any]], **more: Any) -> msgspec.Raw:
        head = {"id": self.id, "object": "response", "created_at": self._created_s, "status": status, "error": None,
                "incomplete_details": None, "output": output, "usage": None} | more
        return msgspec.Raw(json_encode(head)[:-1] + b"," + self._echo)

    def ended(self, ending: Ending, output: list[dict[str, Any]], reasoning_tokens: int, at_us: int,
              **more: Any) -> msgspec.Raw:
        """The object of a run that has ended, at `at_us`."""
        more["usage"] = usage_json(ending.tokens, reasoning_tokens)
        if not ending.completed:
            cancelled = ending.kind == "cancelled"
            return self.as_json(status_of(ending), output, error=None if cancelled else error_json(ending), **more)
        reason = incomplete_reason(ending)
        if reason:
            return self.as_json("incomplete", output, incomplete_details={"reason": reason}, **more)
        return self.as_json("completed", output, completed_at=at_us // 1_000_000, **more)


def state_status(record: RunRecord) -> str:
    """The status of a run by its row."""
    return _STATES.get(record.state, "in_progress")


def status_of(ending: Ending) -> str:
    """The status of a run that has ended."""
    if ending.completed:
        return "incomplete" if incomplete_reason(ending) else "completed"
    return "cancelled" if ending.kind == "cancelled" else "failed"


def incomplete_reason(ending: Ending) -> str:
    """Why a completed run's answer is no whole one; "" when it is."""
    return _INCOMPLETE.get(ending.finish_reason, "") if ending.completed else ""


def usage_json(usage: run_pb2.Usage | None, reasoning_tokens: int = 0) -> dict[str, Any] | None:
    if usage is None:
        return None
    return {"input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": usage.completion_tokens, "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
            "total_tokens": usage.total_tokens}


def error_json(ending: Ending) -> dict[str, Any]:
    """`code` in the words that codex knows, `type` in ours: it is the code of every other face."""
    error = ending.error() | _backends(ending.outcome.upstream_body)
    own, message = str(error.get("code") or ""), str(error["message"])
    code = _code(own, str(error.get("type") or ""), ending)
    if code == "rate_limit_exceeded" and "try again in" not in message.lower():
        message += f" Please try again in {max(1, round(ending.outcome.retry_after_s or 5))}s."     # codex reads it here
    return {"code": code, "message": message, "type": own or ending.kind, "param": error.get("param")}


def _backends(body: bytes) -> dict[str, Any]:
    """The error inside a backend's own `response.failed`, where it sent one."""
    failed = read_as(_failed, body)
    error = failed.response.error if failed is not None else None
    return {} if error is None else {name: error[name] for name in ("code", "message") if isinstance(error.get(name), str)}


def _code(own: str, kind: str, ending: Ending) -> str:
    for told in (own, kind):
        if told in _KNOWN or told in _OURS:
            return _OURS.get(told, told)
    return _BY_STATUS.get(ending.outcome.upstream_status, "server_error")
