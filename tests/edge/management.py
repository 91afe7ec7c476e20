"""The management API over the fake edge, as tests ask it."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock

from iop.cli.client import parse_events
from iop.config import HttpListen
from iop.edge.routes import make_site
from iop.keys import SCOPES, KeyRing, make_key
from iop.metrics import Metrics
from iop.testing.edge import FakeEdge
from iop.testing.web import Wire

BODY = {"adapter": "openai", "target": "tiny", "input": {"prompt": "hi"}}


class World:
    """An edge behind its site, an operator's key and a client's."""

    def __init__(self) -> None:
        self.edge, self.clock = FakeEdge(), Clock()
        op, self.op = make_key("api", "op", list(SCOPES))
        client, self.client = make_key("api", "client", ["runs:read", "runs:write"])
        ring = KeyRing([op, client])
        self.site = make_site(self.edge, lambda: ring, HttpListen(), Metrics(self.edge), self.clock)

    def wire(self, key: str | None = None) -> Wire:
        return Wire(self.site, key or self.op)

    def call(self, method: str, path: str, body: Any = None, key: str | None = None, **headers: str) -> Any:
        return self.wire(key).call(method, path, body, **headers)

    def submitted(self, target: str = "tiny", key: str | None = None) -> str:
        answer = self.call("POST", "/api/v1/runs", {**BODY, "target": target}, key)
        return answer.json["run_id"]


def ids(body: bytes) -> list[Any]:
    """Of the events of a stream."""
    return [event.data["id"] for event in parse_events(iter(body.splitlines(keepends=True)))]
