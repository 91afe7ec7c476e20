"""How a run ended, and how each dialect says that it did not end well. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from iop import modelapis
from iop.edge.models.foreign_json import read_object
from iop.edge.models.prompt_too_long import prompt_too_long
from iop.errors import HistoryGap
from iop.events import ENDING_KINDS, outcome_of, usage_dict
from iop.proto import run_pb2
from iop.proto.run_pb2 import Outcome, RuntimeEvent
from iop.web.errors import ANTHROPIC, OLLAMA, OPENAI, error_body, named_request, openai_error, status_of

# What backends answer when it is the node's key that they refuse: nothing that their client could mend.
_NOT_THE_CLIENTS = frozenset((401, 403, 407))
_CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
# llama.cpp: "exceeds the available context size"; vLLM and SGLang: "maximum context length", "model's context length".
_MEANS_TOO_LONG = re.compile(r"exceed_context_size|\bcontext (?:size|length|window)\b", re.IGNORECASE)
_CALLED = "tool_calls"


def dialect_of_api(api: str) -> str:
    """The dialect in which clients of a model API are told of errors."""
    if api in (modelapis.MESSAGES, modelapis.COUNT_TOKENS):
        return ANTHROPIC
    return OLLAMA if api in modelapis.OLLAMA else OPENAI


class Ending:
    """What a run has told of itself beside its output, and how it ended, once its entries have told."""

    def __init__(self, dialect: str = OPENAI) -> None:
        self.dialect = dialect
        self.request_id = ""         # the client's request
        self.kind = ""
        self.outcome = Outcome()
        self.started = False
        self.started_us = self.ended_us = 0      # Unix time, microseconds
        self.api = ""                # the model API that its chunks belong to, where that is not the run's own
        self.content_type = ""       # of the backend's reply; "" while no model backend has replied
        self.usage: run_pb2.Usage | None = None
        self.finish = ""             # the last finish_reason among the chunks
        self.calls = 0               # how many tool calls the model made
        self.warnings: list[str] = []
        self._gap = False

    def read(self, told: Iterable[RuntimeEvent]) -> None:
        for event in told:
            kind = event.WhichOneof("kind")
            if kind == "started":
                self.started_us = event.at_us
                self._begun(event.started.response)
            elif kind == "usage":
                self.usage = event.usage
            elif kind == "status":
                if event.status.word == "warning":
                    self.warnings.append(event.status.detail)
            elif kind == "gap":
                self._gap = True
            elif kind in ENDING_KINDS:
                self.ended_us = event.at_us
                self.kind, self.outcome = kind, getattr(event, kind)
                if self._gap and self.completed:     # an answer with a hole in it is none
                    self.kind, self.outcome = "failed", outcome_of(HistoryGap("Part of the answer was lost by the history."))

    def _begun(self, response: bytes) -> None:
        self.started = True
        reply = msgspec.json.decode(response) if response else {}
        self.api, self.content_type = reply.get("api", ""), reply.get("content_type", "")

    @property
    def completed(self) -> bool:
        return self.kind == "completed"

    @property
    def finish_reason(self) -> str:
        """In the words of chat/completions: stop, length, tool_calls, content_filter. Of a run that has completed.

        A model that called tools waits for their results, whatever else its backend says.
        """
        told = self.finish or self.outcome.finish_reason or "stop"
        return _CALLED if self.calls and told in ("stop", "function_call") else told

    @property
    def tokens(self) -> run_pb2.Usage | None:
        """What it used; None when nobody counted."""
        return self.outcome.usage if self.outcome.HasField("usage") else self.usage

    def usage_json(self) -> dict[str, object] | None:
        """As chat/completions tells it."""
        usage = self.tokens
        if usage is None:
            return None
        told = usage_dict(usage)
        short = {name: told[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
        return short | ({"prompt_tokens_details": {"cached_tokens": usage.cached_tokens}} if usage.cached_tokens else {})

    # --- an ending that is none of completed

    @property
    def code(self) -> str:
        """The stable code; `context_length_exceeded` where the backend's words mean that."""
        return str(self.error()["code"] or "")

    @property
    def message(self) -> str:
        return str(self.error()["message"])

    def error(self) -> dict[str, Any]:
        """`message`, `type`, `param` and `code` as OpenAI's clients read them, and the backend's further fields."""
        code = self.outcome.code or self.kind or "internal_error"
        message = self.outcome.message or f"The run ended as {self.kind or 'unknown'}."
        ours: Any = openai_error(_code_of(message, code), message, self.status)["error"]
        return ours if (own := self._own()) is None else ours | own

    def error_json(self) -> dict[str, object]:
        """The error's body in the dialect of the run's client: the backend's own when it sent one in that dialect."""
        if self.dialect == OPENAI:
            return {"error": self.error()}
        if self.dialect == ANTHROPIC and (own := self._anthropic()) is not None:
            return own
        message = self.message
        if self.dialect == ANTHROPIC and self.code == _CONTEXT_LENGTH_EXCEEDED:
            message = prompt_too_long(message, self.error())
        told = error_body(self.dialect, self.outcome.code, message, self.status)
        return told | named_request(self.dialect, self.request_id)

    def _own(self) -> dict[str, Any] | None:
        return None if self.outcome.upstream_status in _NOT_THE_CLIENTS else _own_error(self.outcome.upstream_body)

    def _anthropic(self) -> dict[str, object] | None:
        """The backend's body as it came, where it speaks this dialect."""
        body = read_object(self.outcome.upstream_body)
        return body if body is not None and body.get("type") == "error" and self._own() is not None else None

    @property
    def status(self) -> int:
        """The HTTP status when nothing was written yet."""
        upstream = self.outcome.upstream_status
        if 400 <= upstream < 600 and upstream not in _NOT_THE_CLIENTS:
            return upstream
        return status_of(self.outcome.code or self.kind, self.dialect)


def _code_of(words: str, code: Any) -> Any:
    """`code`, unless the backend's words mean that the prompt is too long."""
    return _CONTEXT_LENGTH_EXCEEDED if _MEANS_TOO_LONG.search(words) else code


def _own_error(body: bytes) -> dict[str, Any] | None:
    """The fields of a backend's error that has a message; None when it has none. Those which clients compare are strings
    or null: llama.cpp and vLLM say `"code": 400`, which is the status again."""
    value = read_object(body)
    error = None if value is None else value.get("error", value)
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return None
    told = {name: error[name] for name in ("type", "param", "code") if isinstance(error.get(name), str)}
    if "code" not in told:
        told["code"] = _code_of(f"{told.get('type')} {error['message']}", told.get("type"))
    return {name: item for name, item in error.items() if name not in ("type", "param", "code")} | told
