"""Runs as batches of what backends send, and how the Responses API tells them."""

import json

from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from iop import events
from iop.edge.models.responses import ResponseBody, ResponseStream
from iop.proto import run_pb2
from iop.proto.run_pb2 import EventBatch, RuntimeEvent
from iop.records import RunRecord
from iop.testing.runs import FakeEntry

RUN = "0" * 31 + "1"
RECORD = RunRecord(run_id=RUN, state="running", adapter="openai", target="tiny", created_us=1_790_000_000_000_000)
STREAM_EVENT = TypeAdapter(ResponseStreamEvent)
PATCH = {"type": "custom", "name": "apply_patch"}
AGENTS = {"type": "namespace", "name": "agents", "description": "a", "tools": [{"type": "function", "name": "spawn"}]}


def started(api="chat/completions"):
    reply = {"status": 200, "content_type": "text/event-stream"} | ({"api": api} if api else {})
    return events.started("openai", "tiny", response=json.dumps(reply).encode())


def chunk(finish=None, **delta):
    raw = {"id": "up", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return events.output(delta.get("content") or "", raw=json.dumps(raw).encode())


def call_begin(index, name, call_id=None, arguments=""):
    return chunk(tool_calls=[{"index": index, "id": call_id or f"call_{index}", "type": "function",
                              "function": {"name": name, "arguments": arguments}}])


def call_piece(index, arguments):
    return chunk(tool_calls=[{"index": index, "function": {"arguments": arguments}}])


def usage(prompt=11, completion=6, cached=3):
    return RuntimeEvent(at_us=1, usage=run_pb2.Usage(prompt_tokens=prompt, completion_tokens=completion,
                                                     total_tokens=prompt + completion, cached_tokens=cached),
                        raw=b'{"choices":[],"usage":{"completion_tokens_details":{"reasoning_tokens":2}}}')


def completed(finish="stop"):
    return events.ending("completed", run_pb2.Outcome(code="ok", finish_reason=finish))


def failed(error):
    return events.failed(error)


def entries(*batches):
    told, seq = [], 1
    for batch in batches:
        batch = batch if isinstance(batch, list) else [batch]
        told.append(FakeEntry(EventBatch(run_id=RUN, attempt=1, first_seq=seq, events=batch)))
        seq += len(batch)
    return told


def stream(*batches, after=-1, **asked):
    teller = ResponseStream(RECORD, {"model": "tiny", "input": "hi"} | asked, "tiny", after)
    return b"".join([*(teller.write(entry) for entry in entries(*batches)), teller.end()])


def parsed(body):
    """The events of a stream; each must say its type twice and be one that the official client knows."""
    told = []
    for frame in body.decode().split("\n\n")[:-1]:
        line, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert line == f"event: {event['type']}"
        told.append(event)
    return told


def checked(body):
    """The same, of a whole stream: numbered without a hole, and valid for the official client."""
    told = parsed(body)
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    for event in told:
        STREAM_EVENT.validate_python(event, strict=False)
    return told


def kinds(told):
    return [event["type"].removeprefix("response.") for event in told]


def whole(*batches, **asked):
    teller = ResponseBody(RECORD, {"model": "tiny", "input": "hi"} | asked, "tiny")
    for entry in entries(*batches):
        teller.read(entry)
    return json.loads(teller.body())


def native(kind, number=None, **more):
    counted = {} if number is None else {"sequence_number": number}
    return events.output("", raw=json.dumps({"type": f"response.{kind}", **counted, **more}, separators=(",", ":")).encode())


OWN = {"id": "resp_backend", "object": "response", "status": "completed", "output": [{"type": "message", "x": 1.50}]}

RUN_OF_ALL = (started(), chunk(reasoning_content="Hm."), [chunk(content="Hel"), chunk(content="lo")],
              [call_begin(0, "apply_patch"), call_piece(0, '{"input":"x"}')], [chunk("tool_calls"), usage()], completed())
