"""A batch of events as its readers get it: each dialect is made once per batch, whoever reads it."""

from __future__ import annotations

from typing import Any

from iop.events import CHANNEL_NAMES, as_dict, json_encode, life_dict, rfc3339
from iop.proto import node_pb2
from iop.proto.run_pb2 import RuntimeEvent
from iop.web.sse import data_frame, data_frames

SSE = "sse"
OPENAI = "openai"
OPENAI_WITH_USAGE = "openai+usage"


def management_sse(entry: Any) -> bytes:
    """A batch as Server-Sent Events of the management API: id, event and one line of JSON each."""
    made = entry.dialects.get(SSE)
    if made is None:
        attempt, first = entry.attempt, entry.first_seq
        made = entry.dialects[SSE] = b"".join([
            _management_frame(attempt, first + offset, event) for offset, event in enumerate(entry.batch.events)])
    return made


def _management_frame(attempt: int, seq: int, event: RuntimeEvent) -> bytes:
    if event.output and event.at_us and not event.exact:
        # What as_dict gives for plain output, without the dict: most events are this.
        event_id = f"{attempt}.{seq}"
        return (f'id: {event_id}\nevent: output\ndata: {{"id":"{event_id}","attempt":{attempt},"seq":{seq},"at":'
                f'"{rfc3339(event.at_us)}","type":"output","channel":"{CHANNEL_NAMES.get(event.channel, "text")}","text":'
                ).encode("ascii") + json_encode(event.output) + b"}\n\n"
    value = as_dict(attempt, seq, event)
    return b"id: %d.%d\nevent: %b\n%b" % (attempt, seq, str(value["type"]).encode(), data_frame(json_encode(value)))


def openai_raw(entry: Any, with_usage: bool) -> bytes:
    """The backend's own chunks of a batch as `data:` lines; the chunk with only the usage is for who asked for it."""
    name = OPENAI_WITH_USAGE if with_usage else OPENAI
    made = entry.dialects.get(name)
    if made is None:
        made = entry.dialects[name] = data_frames([
            raw for event in entry.batch.events if (raw := event.raw) and (with_usage or not event.HasField("usage"))])
    return made


def life_sse(event: node_pb2.EdgeNodeEvent) -> bytes:
    return b"id: %d\nevent: lifecycle\n%b" % (event.event_id, data_frame(json_encode(life_dict(event))))
