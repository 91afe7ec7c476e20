"""What a backend's refusal means: what it says, how long to wait, and whether something else may be asked. Pure."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

import msgspec

from iop.errors import UpstreamError
from iop.events import now_us

RETRYABLE = frozenset((408, 425, 429, 500, 502, 503, 504, 529))     # 529: Anthropic's "overloaded"
LONGEST_WAIT_S = 3600.0      # what is longer is no wait but an absence


def error_text(body: bytes) -> str:
    """The sentence in a backend's error body, or empty."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return body[:200].decode("utf-8", "replace").strip()
    return error_sentence(value.get("error", value) if isinstance(value, dict) else value)


def error_sentence(error: object) -> str:
    """That of an `error` as OpenAI, Anthropic, Ollama or FastAPI have it."""
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or ""
    return str(error)[:500].encode("utf-8", "replace").decode("utf-8") if error else ""


def error_status(error: object) -> int:
    """That of the answer which an error in a stream would have been, where it says so (vLLM and llama.cpp do)."""
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 0


def error_told(opening: str, error: object, payload: bytes) -> UpstreamError:
    """An error that came with a status of 200; it can be tried again where its own status says so."""
    status = error_status(error)
    return UpstreamError(f"{opening} {error_sentence(error)}".strip(), status=status, body=payload[:65536],
                         retryable=status in RETRYABLE)


def no_answer(api: str, why_not: str) -> UpstreamError:
    """A reply of 200 that may be anything, but is no answer of the API that was asked."""
    return UpstreamError(f"The backend's answer is not one of the {api} API: {why_not}.", status=200)


def refuses_to_stream(status: int, body: bytes) -> bool:
    """Whether a refusal may be of what IOP has put into the body. A wrong guess costs one more refusal."""
    return status in (400, 422) and b"stream" in body


def lacks_api(status: int) -> bool:
    """Whether a refusal may be of a path that the backend does not have. A wrong guess costs one more refusal."""
    return status in (404, 405, 501)


def retry_after(milliseconds: bytes, seconds: bytes) -> float:
    """Seconds to wait, by `retry-after-ms` and `retry-after` (RFC 9110, 10.2.3: a number or a date); 0: not known."""
    told = _number(milliseconds) / 1000 or _number(seconds) or _until(seconds)
    return told if 0 < told <= LONGEST_WAIT_S else 0.0


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _until(date: bytes) -> float:
    try:
        return parsedate_to_datetime(date.decode("ascii")).timestamp() - now_us() / 1e6
    except (ValueError, TypeError, IndexError):
        return 0.0
