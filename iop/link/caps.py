"""How many of anything one message may hold, checked after decoding and before sending.

A frame of 1 MiB can hold half a million empty events: bytes alone bound nothing. Event batches, the hot path, pay for one
length; all other kinds are walked, since they are few.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.internal import api_implementation

from iop.proto import link_pb2, run_pb2

EVENTS = 1_000                       # in a batch
ITEMS = 10_000                       # in any other list: targets above all
MAP_ENTRIES = 1_000
STRING_CHARS = 64 * 1024             # of any text but a prompt; bytes fields are payload
HARMLESS_BYTES = 1_000               # whatever a message of this size holds, no cap is below: one byte an item at least

_LISTS = {
    link_pb2.RunsReport.DESCRIPTOR.fields_by_name["runs"].full_name: 1_000,
    link_pb2.Verdicts.DESCRIPTOR.fields_by_name["runs"].full_name: 1_000,
}
_PAYLOADS = {run_pb2.RunRequest.DESCRIPTOR.fields_by_name["prompt"].full_name}


class TooMany(ValueError):
    """A message holds more than it may; the text names the field and the cap."""


def require_native_protobuf(kind: str | None = None) -> None:
    """Fail where protobuf runs in pure Python: there, nested messages exhaust the stack (CVE-2025-4565)."""
    if (kind or api_implementation.Type()) == "python":
        raise ImportError("protobuf runs in pure Python here, which is slow and unsafe to feed from a network; install the "
                          "wheel of protobuf that fits this machine.")


require_native_protobuf()


def check_batch(batch: run_pb2.EventBatch) -> None:
    if len(batch.events) > EVENTS:
        raise TooMany(f"EventBatch.events holds {len(batch.events)}; at most {EVENTS} are allowed.")


def check_order(order: run_pb2.RunRequest) -> None:
    """Walked only where there is much beside its input."""
    if order.ByteSize() - len(order.body) - len(order.messages) - len(order.prompt) > HARMLESS_BYTES:
        check_message(order)


def check_message(message: Any) -> None:
    """Walk a message. upb itself stops at a depth of 100."""
    for field, value in message.ListFields():
        if field.is_repeated:
            _check_list(field, value)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            check_message(value)
        elif field.type == FieldDescriptor.TYPE_STRING:
            _check_string(field, value)


def _check_list(field: FieldDescriptor, value: Any) -> None:
    is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
    cap = MAP_ENTRIES if is_map else _LISTS.get(field.full_name, ITEMS)
    if len(value) > cap:
        raise TooMany(f"{field.full_name} holds {len(value)}; at most {cap} are allowed.")
    if is_map:
        for key, entry in value.items():
            _check_string(field, key)
            if isinstance(entry, str):
                _check_string(field, entry)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        for entry in value:
            check_message(entry)
    elif field.type == FieldDescriptor.TYPE_STRING:
        for entry in value:
            _check_string(field, entry)


def _check_string(field: FieldDescriptor, value: str) -> None:
    if len(value) > STRING_CHARS and field.full_name not in _PAYLOADS:
        raise TooMany(f"{field.full_name} has {len(value)} characters; at most {STRING_CHARS} are allowed.")


def check_for(kind: str) -> Callable[[Any], None]:
    """The check of one kind of frame."""
    return {"event_batch": check_batch, "run_request": check_order}.get(kind, check_message)
