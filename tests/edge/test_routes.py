"""The route table as a whole: who may what, what the document says, health and figures."""

import json
from collections import Counter
from types import SimpleNamespace

import msgspec
import pytest
from twisted.internet.task import Clock

from iop import events
from iop.config import HttpListen
from iop.edge.openapi import statuses
from iop.edge.routes import make_site
from iop.keys import SCOPES, KeyRing, make_key
from iop.metrics import Capped, Metrics
from iop.records import RunRecord
from iop.testing.edge import FakeEdge, script
from iop.testing.web import Wire
from iop.web.route import PUBLIC


class World:
    def __init__(self):
        self.edge, self.clock = FakeEdge(), Clock()
        self.links = SimpleNamespace(refused=Counter(), protocol_errors=Counter())
        self.metrics = Metrics(self.edge, links=self.links)
        self.metrics.start()
        self.keys, self.texts = [], {}
        for owner, scopes in [("op", list(SCOPES)), *((scope, [scope]) for scope in SCOPES)]:
            key, self.texts[owner] = make_key("api", owner, scopes)
            self.keys.append(key)
        node_key, self.texts["node"] = make_key("node", "n1")
        self.ring = KeyRing([*self.keys, node_key])
        self.site = make_site(self.edge, lambda: self.ring, HttpListen(), self.metrics, self.clock)

    def wire(self, owner="op"):
        return Wire(self.site, self.texts.get(owner, owner))

    def call(self, method, path, body=None, owner="op", **headers):
        return self.wire(owner).call(method, path, body, **headers)


@pytest.fixture
def world():
    return World()


ROUTES = World().site.admission.table.routes
RUN = {"run_id": "0" * 32, "node_id": "n1", "session_id": "s1", "model...": "tiny"}


def _path(route):
    path = route.path
    for name, value in RUN.items():
        path = path.replace("{" + name + "}", value)
    return path


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_is_closed_to_whom_it_is_not_for(world, route):
    body = {} if route.body is not None else None
    wrong = make_key("api", "x")[1]
    if route.scope == PUBLIC:
        assert world.call(route.method, _path(route), body, owner="").status < 400
        return
    assert route.scope in SCOPES
    for text in ("", wrong, world.texts["node"], world.texts["op"][:-1]):
        answer = Wire(world.site, text).call(route.method, _path(route), body)
        assert answer.status == 401
    for scope in SCOPES:
        status = world.call(route.method, _path(route), body, owner=scope).status
        assert (status == 403) == (scope not in (route.scope, "admin")), scope
        assert status != 401


def test_a_key_that_is_taken_away_counts_no_more(world):
    assert world.call("GET", "/api/v1/nodes").status == 200
    world.ring = KeyRing([])
    assert world.call("GET", "/api/v1/nodes").status == 401


@pytest.mark.parametrize("route", [route for route in ROUTES if route.body is not None and route.dialect == "management"],
                         ids=lambda route: route.path)
def test_an_unknown_field_is_refused(world, route):
    answer = world.call(route.method, _path(route), {"owner": "me"})
    assert answer.status == 400
    assert "owner" in answer.json["error"]["message"]


@pytest.mark.parametrize("route", [
    route for route in ROUTES
    if route.method == "GET" and route.query is not None and route.query.__struct_config__.forbid_unknown_fields],
                         ids=lambda route: route.path)
def test_an_unknown_query_is_refused(world, route):
    if route.query.__name__ != "NoQuery":
        assert world.call("GET", _path(route) + "?nonsense=1").status == 400


def test_the_document_tells_of_every_route_and_only_of_those(world):
    document = world.call("GET", "/api/v1/openapi.json", owner="").json
    told = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert told == {(route.method, route.path.replace("...}", "}")) for route in ROUTES}
    for route in ROUTES:
        operation = document["paths"][route.path.replace("...}", "}")][route.method.lower()]
        told = operation["responses"]
        assert ("default" in told) == (502 in route.errors), "what a backend answers passes with its own status"
        assert {int(status) for status in told if status != "default"} == {route.success, *statuses(route)}
        assert operation["security"] == [] if route.scope == PUBLIC else operation["x-iop-scope"] == route.scope


def test_every_reference_in_the_document_leads_somewhere(world):
    document = world.call("GET", "/api/v1/openapi.json", owner="").json
    text = json.dumps(document)
    for name in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in document["components"]["schemas"], name


# --- health and figures

def test_alive_is_told_also_when_it_is_not_ready(world):
    world.edge.healthy.update(ready=False, reasons=["History cannot be written: disk full"])
    alive = world.call("GET", "/healthz", owner="")
    assert (alive.status, alive.json["status"], alive.json["reactor_lag_ms"]) == (200, "alive", 0.5)
    ready = world.call("GET", "/readyz", owner="")
    assert (ready.status, ready.json["reasons"]) == (503, ["History cannot be written: disk full"])
    world.edge.healthy.update(ready=True, reasons=[])
    assert world.call("GET", "/readyz", owner="").status == 200


def test_the_figures_tell_of_nodes_runs_and_requests(world):
    world.edge.happened("run_ended", detail=b'{"code": "ok", "adapter": "cli", "target": "t"}')
    world.edge.happened("run_ended", detail=b'{"code": "ok", "adapter": "cli", "target": "t"}')
    world.call("GET", "/api/v1/nodes")
    world.call("GET", "/api/v1/nodes/nobody")
    text = world.call("GET", "/metrics").body.decode()
    assert 'iop_runs_ended_total{adapter="cli",code="ok",target="t"} 2.0' in text
    assert 'iop_http_requests_total{route="/api/v1/nodes/{node_id}",status="404"} 1.0' in text
    assert 'iop_node_up{node="n1"} 1.0' in text
    assert "iop_reactor_lag_seconds 0.0005" in text
    assert "iop_nodes_up 1.0" in text


def test_the_figures_tell_how_long_runs_take_and_what_they_use(world):
    record = RunRecord(run_id="r", state="completed", adapter="openai", target="qwen", created_us=1_000_000,
                       placed_us=1_500_000, first_output_us=2_000_000, ended_us=4_000_000, prompt_tokens=7,
                       completion_tokens=11)
    detail = {"code": "ok", "adapter": "openai", "target": "qwen", **record.figures()}
    world.edge.happened("run_ended", detail=msgspec.json.encode(detail))
    lines = world.call("GET", "/metrics").body.decode().splitlines()
    of = 'adapter="openai",target="qwen"'
    assert f"iop_run_queue_time_seconds_sum{{{of}}} 0.5" in lines
    assert f"gen_ai_server_time_to_first_token_seconds_sum{{{of}}} 1.0" in lines
    assert f"gen_ai_server_time_per_output_token_seconds_sum{{{of}}} 0.2" in lines
    assert f"gen_ai_server_request_duration_seconds_sum{{{of}}} 3.0" in lines
    assert 'gen_ai_client_token_usage_total{adapter="openai",gen_ai_token_type="output",target="qwen"} 11.0' in lines
    assert not any(line.startswith("gen_ai_client_token_usage_total") and "input_cached" in line for line in lines)


def test_the_figures_tell_what_is_under_way_at_each_target(world):
    lines = world.call("GET", "/metrics").body.decode().splitlines()
    told = {line.split("{")[0] for line in lines if line.startswith(("iop_runs_in_flight{", "iop_target_nodes_ready{"))}
    assert told == {"iop_runs_in_flight", "iop_target_nodes_ready"}


def test_the_figures_tell_why_links_were_refused(world):
    world.links.refused["auth_failed"] += 2
    world.links.protocol_errors["tls_failed"] += 1
    text = world.call("GET", "/metrics").body.decode()
    assert 'iop_link_refused_total{code="auth_failed"} 2.0' in text
    assert 'iop_link_protocol_errors_total{code="tls_failed"} 1.0' in text


def test_no_outside_word_becomes_a_label(world):
    for number in range(300):
        world.edge.happened("run_ended", detail=msgspec.json.encode({"code": f"code{number}", "adapter": "x"}))
        world.call("GET", f"/made/up/{number}")
    text = world.call("GET", "/metrics").body.decode()
    assert text.count("\niop_runs_ended_total{") == 201
    assert 'code="other",target=""} 100.0' in text
    assert "made" not in text


def test_a_capped_label_keeps_the_names_it_knows():
    capped = Capped(2)
    assert [capped(name) for name in ("a", "b", "c", "a")] == ["a", "b", "other", "a"]


def test_a_run_and_its_key_never_stand_in_an_answer_of_errors(world):
    world.edge.scripts["tiny"] = script(events.output("x"))
    secret = world.texts["op"]
    for path in ("/nowhere", "/api/v1/runs/zzz", "/v1/models/none"):
        assert secret.encode() not in world.call("GET", path).body
