"""IOPError to HTTP: the status, and the body in the dialect of the API that was asked (docs/models.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from iop.errors import IOPError
from iop.web.responses import Response, json_response

MANAGEMENT = "management"
OPENAI = "openai"
ANTHROPIC = "anthropic"
OLLAMA = "ollama"
RETRYING = (OPENAI, ANTHROPIC)           # the dialects whose SDKs try again by themselves

_STATUS = {
    "invalid_request": 400, "config_error": 400, "previous_response_not_found": 400,
    "bad_host": 421, "bad_encoding": 415, "bad_method": 405,
    "auth_failed": 401, "forbidden": 403, "policy_denied": 403,
    "not_found": 404, "not_offered": 404, "no_such_run": 404, "no_such_node": 404, "no_such_target": 404,
    "no_such_session": 404,
    "request_timeout": 408, "conflict": 409, "cancelled": 409, "too_large": 413, "headers_too_large": 431,
    "queue_full": 429, "rate_limit_exceeded": 429, "insufficient_quota": 429,
    "upstream_error": 502, "node_lost": 502, "node_restarted": 502, "adapter_error": 502, "program_failed": 502,
    "output_limit": 502, "unknown": 502, "supervisor_lost": 502, "spool_corrupt": 502, "history_gap": 502,
    "history_conflict": 502,
    "no_node": 503, "draining": 503, "history_unavailable": 503, "link_down": 503, "link_refused": 503,
    "queue_timeout": 504, "start_timeout": 504, "first_output_timeout": 504, "run_timeout": 504, "idle_timeout": 504,
    "command_timeout": 504,
}
# Where the error itself does not know better; whole seconds.
RETRY_AFTER_S = {"queue_full": 2, "rate_limit_exceeded": 5, "no_node": 5, "draining": 5,
                 "history_unavailable": 5}

# Ollama's own word for a queue that is full.
_OLLAMA_STATUS = {"queue_full": 503}

# The statuses on which the SDKs of OpenAI and Anthropic try again by themselves, unless `x-should-retry: false` says that it
# cannot help.
SDK_RETRIES = frozenset((408, 409, 429, *range(500, 600)))

# OpenAI's own words, where it has one: code, then type.
_OPENAI_CODES = {
    "auth_failed": "invalid_api_key", "forbidden": "permission_denied", "policy_denied": "permission_denied",
    "no_such_target": "model_not_found", "queue_full": "rate_limit_exceeded", "no_node": "no_node_available",
}
_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 404: "invalid_request_error",
                 429: "rate_limit_error"}
_ANTHROPIC_TYPES = {401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error",
                    413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error",
                    529: "overloaded_error"}
_OPENAI_TYPES_OF_CODES = {"insufficient_quota": "insufficient_quota"}
_OPENAI_PARAMS = {"no_such_target": "model", "previous_response_not_found": "previous_response_id",
                  "queue_timeout": "queue_s", "start_timeout": "start_s",
                  "first_output_timeout": "first_output_s", "run_timeout": "run_s", "idle_timeout": "silence_s"}


class RequestRefused(IOPError):
    """The HTTP request is refused."""


class BadHost(RequestRefused):
    """This edge does not answer to the name in the Host header."""

    code = "bad_host"
    default_hint = "Use the address it listens on, or add the name to listen.http.names in edge.yaml."


class BadEncoding(RequestRefused):
    """Request bodies are taken as they are; send no Content-Encoding."""

    code = "bad_encoding"


class BadMethod(RequestRefused):
    """This path does not know the method."""

    code = "bad_method"

    def __init__(self, message: str = "", *, allow: list[str] | None = None) -> None:
        super().__init__(message)
        self.allow = allow or []


class NotOffered(RequestRefused):
    """This server does not do that."""

    code = "not_offered"


class RequestTimeout(RequestRefused):
    """The request did not arrive whole in time."""

    code = "request_timeout"
    retryable = True


class HeadersTooLarge(RequestRefused):
    """The request's head is larger than the limit."""

    code = "headers_too_large"


def status_of(code: str, dialect: str = MANAGEMENT) -> int:
    if dialect == OLLAMA and code in _OLLAMA_STATUS:
        return _OLLAMA_STATUS[code]
    return _STATUS.get(code, 500)


def openai_error(code: str, message: str, status: int) -> dict[str, object]:
    """The body of an error in OpenAI's dialect; every value is a string or null, as its clients need."""
    kind = _OPENAI_TYPES_OF_CODES.get(code) or _OPENAI_TYPES.get(
        status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": _OPENAI_PARAMS.get(code),
                      "code": _OPENAI_CODES.get(code, code)}}


def anthropic_error(code: str, message: str, status: int) -> dict[str, object]:
    """The body of an error in Anthropic's dialect (docs.anthropic.com, Errors, 2026-11); it has no codes of its own."""
    kind = _ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def ollama_error(code: str, message: str, status: int) -> dict[str, object]:
    """The body of an error in Ollama's dialect: a text."""
    return {"error": message}


_MODEL_ERRORS: dict[str, Callable[[str, str, int], dict[str, object]]] = {
    OPENAI: openai_error, ANTHROPIC: anthropic_error, OLLAMA: ollama_error}


def error_body(dialect: str, code: str, message: str, status: int) -> dict[str, object]:
    """The body of an error of one of the model APIs."""
    return _MODEL_ERRORS[dialect](code, message, status)


def error_response(error: IOPError, dialect: str, headers: Mapping[str, str] | None = None,
                   request_id: str = "") -> Response:
    """`error` as a response; retries that help are told when to come."""
    status = status_of(error.code, dialect)
    told = retry_headers(error.code, error.retry_after_s) | dict(headers or {})
    if status == 401:
        told.setdefault("WWW-Authenticate", 'Bearer realm="iop"')
    if isinstance(error, BadMethod) and error.allow:
        told.setdefault("Allow", ", ".join(error.allow))
    if dialect in RETRYING and not error.retryable and status in SDK_RETRIES:
        told.setdefault("x-should-retry", "false")
    if dialect in _MODEL_ERRORS:
        body = error_body(dialect, error.code, error.sentence, status)
        return json_response(body | named_request(dialect, request_id), status, told | request_header(dialect, request_id))
    return json_response({"error": error.as_dict()}, status, told)


def named_request(dialect: str, request_id: str) -> dict[str, object]:
    """What Anthropic's errors have beside all others'."""
    return {"request_id": request_id} if request_id and dialect == ANTHROPIC else {}


def request_header(dialect: str, request_id: str) -> dict[str, str]:
    """Anthropic's own name of x-request-id, which its SDKs read."""
    return {"request-id": request_id} if request_id and dialect == ANTHROPIC else {}


def retry_headers(code: str, after_s: float = 0.0) -> dict[str, str]:
    """When to come again, in the two headers that clients read: whole seconds, and exactly; empty where no time is known."""
    after_s = after_s or RETRY_AFTER_S.get(code, 0.0)
    return {"Retry-After": str(math.ceil(after_s)), "retry-after-ms": str(math.ceil(after_s * 1000))} if after_s > 0 else {}


def fault_response(fault_id: str, dialect: str) -> Response:
    """For a fault of ours: the body carries the id under which the log has the details, and nothing else."""
    error = IOPError(f"A fault inside IOP; the log has the details under {fault_id}.")
    return error_response(error, dialect, request_id=fault_id)
