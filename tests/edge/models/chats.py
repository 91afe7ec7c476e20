"""Requests of chat/completions, what backends answer them, and how the answers are read."""

import json

from iop import events
from iop.proto import run_pb2

CHAT = "/v1/chat/completions"
ASK = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
STREAM = {**ASK, "stream": True}
WITH_USAGE = {**STREAM, "stream_options": {"include_usage": True}}
DONE = b"data: [DONE]\n\n"


def chunk(text, finish=None, spaces=""):
    """A backend's own chunk; with `spaces` in a spelling that we would not make."""
    raw = json.dumps({"id": "up", "object": "chat.completion.chunk", "created": 1, "model": "backend", "x_new_field": [1.50],
                      "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]})
    return events.output(text, raw=raw.replace(" ", spaces or " ").encode())


def usage_chunk():
    usage = run_pb2.Usage(prompt_tokens=1, completion_tokens=2, total_tokens=3)
    return run_pb2.RuntimeEvent(at_us=1, usage=usage, raw=b'{"choices":[],"usage":{"prompt_tokens":1}}')


def chunks(body):
    """The chunks of a stream; [DONE] must be there, once and last."""
    assert body.count(DONE) == 1
    assert body.endswith(DONE)
    return [json.loads(line[6:]) for line in body[:-len(DONE)].split(b"\n") if line.startswith(b"data: ")]


def failure(body):
    """The error that a stream ends with."""
    assert DONE not in body
    return json.loads(body.rstrip().split(b"\n")[-1][6:])["error"]
