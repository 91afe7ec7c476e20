"""A site with all model APIs over a memory wire, in front of a fake edge."""

import json

import pytest
from twisted.internet.task import Clock

from iop import events
from iop.config import HttpListen
from iop.edge.routes import make_site
from iop.keys import SCOPES, KeyRing, make_key
from iop.metrics import Metrics
from iop.proto import run_pb2
from iop.testing.edge import FakeEdge
from iop.testing.runs import FakeEntry
from iop.testing.web import Wire
from tests.edge.models.chats import CHAT, STREAM


class World:
    """`op` is a key that may do everything, `models` one that may ask models; requests without a key go with `key`."""

    def __init__(self, **listen):
        self.edge, self.clock = FakeEdge(), Clock()
        op, self.op = make_key("api", "op", list(SCOPES))
        models, self.models = make_key("api", "chatter", ["models"])
        ring = KeyRing([op, models])
        self.site = make_site(self.edge, lambda: ring, HttpListen(**listen), Metrics(self.edge), self.clock)
        self.key = self.op

    def wire(self, key=None):
        return Wire(self.site, key or self.key)

    def call(self, method, path, body=None, key=None, **headers):
        return self.wire(key).call(method, path, body, **headers)

    def asking(self, path, body, **headers):
        """A request whose answer is still to come."""
        wire = self.wire()
        wire.ask("POST", path, body, **headers)
        return wire

    def chatting(self, body=STREAM, **headers):
        """A chat whose answer is still to come."""
        return self.asking(CHAT, body, **headers)


@pytest.fixture
def world():
    return World()


@pytest.fixture
def make_world():
    return World


def entry(*told, first=1):
    """A batch of the run r1 as a cursor gives it, whose events are counted from `first`."""
    return FakeEntry(run_pb2.EventBatch(run_id="r1", attempt=1, first_seq=first, events=told))


def started(api=None, content_type="application/json", **fields):
    """A model's backend has answered; `api`: the one it was asked in, where that is not the run's own."""
    response = {"status": 200, "content_type": content_type} | ({"api": api} if api else {}) | fields
    return events.started("openai", "tiny", response=json.dumps(response).encode())


def chat_chunk(finish=None, index=0, **delta):
    """A chunk of chat/completions as a backend sends it."""
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    raw = {"id": "up", "object": "chat.completion.chunk", "choices": [choice]}
    text = delta.get("content")
    return events.output(text if isinstance(text, str) else "", raw=json.dumps(raw).encode())


def tool_chunk(finish=None, **call):
    return chat_chunk(finish, tool_calls=[call])


def completed(finish="stop", **usage):
    return run_pb2.Outcome(code="ok", finish_reason=finish, usage=run_pb2.Usage(**usage) if usage else None)


def played(*told, outcome=None, ending="completed"):
    """A script: what a run tells, beginning with its `started`, and how it ends."""
    def play(run):
        run.record.state = "running"
        run.emit(*told)
        run.end(ending, outcome or completed())
    return play
