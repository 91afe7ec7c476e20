"""Events of runs, how they are made, and how they and lifecycle events look as JSON. Pure; for every role."""

from __future__ import annotations

import base64
import datetime
import functools
import time
from collections.abc import Iterator

import msgspec

from iop.errors import AdapterError, Cancelled, IOPError, UpstreamError
from iop.proto import run_pb2
from iop.proto.node_pb2 import EdgeNodeEvent
from iop.proto.run_pb2 import CHANNEL_REASONING, CHANNEL_STDERR, CHANNEL_STDOUT, CHANNEL_TEXT, RuntimeEvent
from iop.runs import ENDINGS

ENDING_KINDS = frozenset(ENDINGS)    # how a run ends is the kind of its last event
CHANNEL_NAMES = {CHANNEL_TEXT: "text", CHANNEL_REASONING: "reasoning", CHANNEL_STDOUT: "stdout", CHANNEL_STDERR: "stderr"}
CHANNELS = {name: number for number, name in CHANNEL_NAMES.items()}

# The name of an event's kind in JSON, where it is not the message's own.
_JSON_TYPES = {"tool_call": "tool_started", "tool_result": "tool_finished"}

_BACKEND = frozenset((UpstreamError.code, AdapterError.code))     # what a run fails with because of its backend

json_encode = msgspec.json.Encoder().encode


def now_us() -> int:
    """Unix time in microseconds."""
    return time.time_ns() // 1000


def rfc3339(at_us: int) -> str | None:
    """``2026-12-01T09:50:41.123456Z``; None for 0, which means it has not happened."""
    if not at_us:
        return None
    return f"{_second(at_us // 1_000_000)}.{at_us % 1_000_000:06d}Z"


@functools.lru_cache(maxsize=1024)
def _second(at_s: int) -> str:
    """Most events share their second with the one before; making the text is what costs (5 us)."""
    return f"{datetime.datetime.fromtimestamp(at_s, datetime.UTC):%Y-%m-%dT%H:%M:%S}"


def output(text: str, channel: int = CHANNEL_TEXT, *, raw: bytes = b"", exact: bytes = b"") -> RuntimeEvent:
    """One piece of output. `raw`: the backend's own chunk; `exact`: the bytes, only where `text` replaced some."""
    return RuntimeEvent(at_us=now_us(), channel=channel, output=text, raw=raw, exact=exact)


def started(adapter: str, target: str, detail: str = "", *, pid: int = 0, response: bytes = b"") -> RuntimeEvent:
    return RuntimeEvent(at_us=now_us(), started=run_pb2.Started(
        adapter=adapter, target=target, detail=detail, pid=pid, response=response))


def status(word: str, detail: str = "", progress: float = 0.0) -> RuntimeEvent:
    return RuntimeEvent(at_us=now_us(), status=run_pb2.Status(word=word, detail=detail, progress=progress))


def ending(kind: str, outcome: run_pb2.Outcome) -> RuntimeEvent:
    """A terminal event; `kind` is one of ENDING_KINDS."""
    event = RuntimeEvent(at_us=now_us())
    getattr(event, kind).CopyFrom(outcome)
    return event


def outcome_of(error: IOPError) -> run_pb2.Outcome:
    """The outcome that tells `error`."""
    outcome = run_pb2.Outcome(code=error.code, message=error.message, retryable=error.retryable,
                              retry_after_s=error.retry_after_s)
    if isinstance(error, UpstreamError):
        outcome.upstream_status = error.status
        outcome.upstream_body = error.body[:65536]
    return outcome


def kind_of(error: IOPError) -> str:
    """The kind of ending that tells `error`."""
    return "cancelled" if isinstance(error, Cancelled) else "failed"


def failed(error: IOPError) -> RuntimeEvent:
    return ending("failed", outcome_of(error))


def ending_of(batch: run_pb2.EventBatch) -> tuple[str, run_pb2.Outcome] | None:
    """The terminal event of a batch, which is always its last event, as (kind, outcome)."""
    if not batch.events:
        return None
    kind = batch.events[-1].WhichOneof("kind")
    return (kind, getattr(batch.events[-1], kind)) if kind in ENDING_KINDS else None


def failed_in_silence(batch: run_pb2.EventBatch) -> bool:
    """Whether its run ends in it because a backend failed or could not be started, without any output in it, and trying again
    may help.

    A limit that was passed is the run's own: another node would pass it too, later.
    """
    found = ending_of(batch)
    return (found is not None and found[0] == "failed" and found[1].code in _BACKEND and found[1].retryable
            and not any(event.WhichOneof("kind") in ("output", "tool_call") for event in batch.events))


def outcome_dict(outcome: run_pb2.Outcome) -> dict[str, object]:
    """The `outcome` object of a run and the body of a terminal event."""
    left: object = None
    if outcome.HasField("processes_left"):
        left = "unknown" if outcome.processes_left < 0 else outcome.processes_left
    return {
        "code": outcome.code, "message": outcome.message, "retryable": outcome.retryable,
        "exit_code": outcome.exit_code if outcome.HasField("exit_code") else None,
        "signal": outcome.signal if outcome.HasField("signal") else None,
        "processes_left": left,
        "upstream_status": outcome.upstream_status or None,
        "finish_reason": outcome.finish_reason or None,
        "steps": list(outcome.steps),
        "said": outcome.said or None,
    }


def usage_dict(usage: run_pb2.Usage) -> dict[str, object]:
    return {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.total_tokens, "cached_tokens": usage.cached_tokens, "cost_usd": usage.cost_usd}


def totals_dict(totals: run_pb2.Totals) -> dict[str, object]:
    return {"events": totals.events, "bytes": totals.bytes, "digest": totals.digest.hex()}


def _json_bytes(data: bytes) -> object:
    """JSON that travelled as bytes; text when it is not JSON."""
    try:
        return msgspec.json.decode(data) if data else None
    except msgspec.DecodeError:
        return data.decode("utf-8", "replace")


def _body(kind: str, seq: int, event: RuntimeEvent) -> dict[str, object]:
    """The fields of an event beside its id, time and type."""
    if kind == "output":
        body: dict[str, object] = {"channel": CHANNEL_NAMES.get(event.channel, "text"), "text": event.output}
        if event.exact:
            body["bytes_b64"] = base64.b64encode(event.exact).decode("ascii")
        return body
    value = getattr(event, kind)
    if kind in ENDING_KINDS:
        body = outcome_dict(value)
        if value.HasField("usage"):
            body["usage"] = usage_dict(value.usage)
        if value.HasField("totals"):
            body["totals"] = totals_dict(value.totals)
        return body
    if kind == "started":
        return {"adapter": value.adapter, "target": value.target, "detail": value.detail, "pid": value.pid or None}
    if kind == "usage":
        return usage_dict(value)
    if kind == "tool_call":
        return {"call_id": value.call_id, "name": value.name, "arguments": _json_bytes(value.arguments)}
    if kind == "permission_request":
        return {"request_id": value.request_id, "tool": value.tool, "detail": _json_bytes(value.detail)}
    if kind == "gap":
        return {"first_seq": value.first_seq, "missing": seq - value.first_seq + 1, "reason": value.reason}
    if kind == "truncated":
        return {"channel": CHANNEL_NAMES.get(value.channel, "text"), "dropped_bytes": value.dropped_bytes}
    return {field.name: item for field, item in value.ListFields()}


def as_dict(attempt: int, seq: int, event: RuntimeEvent) -> dict[str, object]:
    """One event as the contract shows it. An event of a kind this version does not know has type "unrecognised"."""
    kind = event.WhichOneof("kind")
    head: dict[str, object] = {"id": f"{attempt}.{seq}", "attempt": attempt, "seq": seq, "at": rfc3339(event.at_us)}
    if kind is None:
        return head | {"type": "unrecognised"}
    return head | {"type": _JSON_TYPES.get(kind, kind)} | _body(kind, seq, event)


def life_dict(event: EdgeNodeEvent) -> dict[str, object]:
    """A lifecycle event of an edge as every face shows it."""
    source = event.source
    return {"id": event.event_id, "at": rfc3339(event.at_us), "type": event.kind, "node_id": event.node_id or None,
            "run_id": event.run_id or None,
            "source": {"face": source.face, "principal": source.principal, "request_id": source.request_id},
            "detail": _json_bytes(event.detail) or {}}


def batch_dicts(batch: run_pb2.EventBatch) -> Iterator[dict[str, object]]:
    """Every event of a batch, in order, as the contract shows it."""
    for offset, event in enumerate(batch.events):
        yield as_dict(batch.attempt, batch.first_seq + offset, event)
