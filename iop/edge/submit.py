"""What a request to run something must be, and the row that it becomes. Pure."""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from iop.config import TIME_LIMITS
from iop.errors import Conflict, InvalidRequest, TooLarge
from iop.events import now_us
from iop.proto.run_pb2 import Limits, RunRequest, Source
from iop.records import RunRecord
from iop.runs import new_run_id

MAX_INPUT_BYTES = 63 * 1024 * 1024       # a link transfers 64 MiB at most, the rest of the request included
MAX_LABELS, MAX_LABEL_CHARS = 64, 256
MAX_PRIORITY = 1000
MAX_KEY_CHARS = 255                      # of an Idempotency-Key
MAX_LIMIT_S = 31_536_000.0               # a year
PROMPT_CHARS = 4096                      # kept for the history's search column
READABLE_BYTES = 256 * 1024              # a larger JSON body is not opened for its prompt: it takes milliseconds

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")


class _Message(msgspec.Struct):
    content: Any = None


class _Body(msgspec.Struct):
    messages: list[_Message] = []
    prompt: Any = None
    input: Any = None


_bodies = msgspec.json.Decoder(_Body)
_messages = msgspec.json.Decoder(list[_Message])


def check(request: RunRequest) -> None:
    """Raises InvalidRequest or TooLarge, naming the field."""
    kind = request.WhichOneof("input")
    if kind is None:
        raise InvalidRequest("A run needs exactly one input: a prompt, messages or a body.")
    size = len(getattr(request, kind))
    if size > MAX_INPUT_BYTES:
        raise TooLarge(f"The {kind} has {size} bytes; at most {MAX_INPUT_BYTES} are allowed.")
    if not request.target or len(request.target) > 300 or len(request.adapter) > 64:
        raise InvalidRequest("A run needs an adapter and a target, by their names.")
    if request.labels:
        check_labels(dict(request.labels))
    if abs(request.priority) > MAX_PRIORITY:
        raise InvalidRequest(f"priority is a number from -{MAX_PRIORITY} to {MAX_PRIORITY}.")
    if request.HasField("limits"):
        check_limits(request.limits)


def check_labels(labels: dict[str, str] | dict[str, str | None]) -> None:
    """Raises InvalidRequest."""
    if len(labels) > MAX_LABELS:
        raise InvalidRequest(f"There are {len(labels)} labels; at most {MAX_LABELS} are allowed.")
    for key, value in labels.items():
        if _KEY.fullmatch(key) is None or (value is not None and len(value) > MAX_LABEL_CHARS):
            raise InvalidRequest(f"The label {key[:40]!r} is not one: names have letters, digits and . _ : / -, at most 128; "
                                 f"values at most {MAX_LABEL_CHARS} characters.")


def check_limits(limits: Limits) -> None:
    """Raises InvalidRequest."""
    for name in TIME_LIMITS:
        value = getattr(limits, name)
        if not math.isfinite(value) or not 0 <= value <= MAX_LIMIT_S:
            raise InvalidRequest(f"limits.{name} is a number of seconds, at most {MAX_LIMIT_S:.0f} (a year).")


def check_idempotency_key(key: str) -> None:
    """Raises InvalidRequest."""
    if not (1 <= len(key) <= MAX_KEY_CHARS and key.isascii() and key.isprintable()):
        raise InvalidRequest(f"An Idempotency-Key has 1 to {MAX_KEY_CHARS} printable ASCII characters.")


def stored_request(request: RunRequest, source: Source, adapter: str, target: str, *, queue_s: float,
                   retry_safe: bool) -> RunRequest:
    """The request as it is stored and sent, with an id of its own; `queue_s` and `retry_safe` count where it is silent."""
    stored = RunRequest()
    stored.CopyFrom(request)
    stored.run_id, stored.attempt, stored.created_us = new_run_id(), 0, now_us()
    stored.adapter, stored.target = adapter, target
    stored.source.CopyFrom(source)
    stored.limits.queue_s = request.limits.queue_s or queue_s
    stored.retry_safe = request.retry_safe if request.HasField("retry_safe") else retry_safe
    return stored


def check_repeated(earlier: RunRecord, record: RunRecord, request: RunRequest) -> None:
    """Raises Conflict where the run that an Idempotency-Key was first used for was asked for something else."""
    by_alias = record.alias != "" and earlier.alias == record.alias
    if not _ask_the_same(RunRequest.FromString(earlier.request), request, by_alias):
        raise Conflict("This Idempotency-Key was used for another request in the last 24 hours.",
                       hint="Give each request a key of its own; only a repetition carries the same one.")


def _ask_the_same(one: RunRequest, other: RunRequest, by_alias: bool) -> bool:
    """Whoever sent them and when; what the edge filled in does not count, as the target where both named the same alias."""
    cleared = ("run_id", "attempt", "created_us", "source", "retry_safe", "detach_s", *(("adapter", "target") * by_alias))
    return _without(cleared, one) == _without(cleared, other)


def _without(names: tuple[str, ...], request: RunRequest) -> RunRequest:
    bare = RunRequest()
    bare.CopyFrom(request)
    for name in names:
        bare.ClearField(name)
    bare.limits.queue_s = 0
    return bare


def record_of(request: RunRequest, idempotency_key: str | None, alias: str, pin: str) -> RunRecord:
    """Its row, before it is placed or queued."""
    return RunRecord(
        run_id=request.run_id, state="queued", adapter=request.adapter, target=request.target,
        created_us=request.created_us, session_id=request.session_id, priority=request.priority,
        face=request.source.face, principal=request.source.principal, request_id=request.source.request_id,
        idempotency_key=idempotency_key, request=request.SerializeToString(), prompt_text=prompt_text(request), alias=alias,
        pin=pin)


def prompt_text(request: RunRequest) -> str:
    """The first 4 Ki characters of what is asked, for people who search."""
    if request.WhichOneof("input") == "prompt":
        return request.prompt[:PROMPT_CHARS]
    data = request.body or request.messages
    if len(data) > READABLE_BYTES:
        return ""
    try:
        if request.body:
            body = _bodies.decode(data)
            found = [message.content for message in body.messages] or _inputs(body.prompt or body.input)
        else:
            found = [message.content for message in _messages.decode(data)]
    except (msgspec.DecodeError, RecursionError):
        return ""
    return "\n".join(text for content in found if (text := _text(content)))[:PROMPT_CHARS]


def _inputs(given: Any) -> list[Any]:
    """Texts of a prompt or an input, or the contents of a response's input items."""
    if not isinstance(given, list):
        return [given]
    return [item.get("content") if isinstance(item, dict) else item for item in given]


def _text(content: Any) -> str:
    """A message's text: a string, or the text parts of a list."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(part if isinstance(part, str) else part["text"] for part in content
                         if isinstance(part, str) or (isinstance(part, dict) and isinstance(part.get("text"), str)))
    return ""
