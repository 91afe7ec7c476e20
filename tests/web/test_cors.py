"""Web pages at the model APIs: none by default, and then those whose origin is configured."""

import pytest
from twisted.internet.task import Clock

from iop.config import HttpListen, load_edge
from iop.edge.routes import make_site
from iop.errors import ConfigError
from iop.keys import SCOPES, KeyRing, make_key
from iop.metrics import Metrics
from iop.testing.edge import FakeEdge
from iop.testing.web import Wire

PAGE, OTHER = "https://chat.example", "https://evil.example"
ALLOW, MODELS = "access-control-allow-origin", "/v1/models"


@pytest.fixture
def make_wire():
    def make(*origins):
        key, text = make_key("api", "op", list(SCOPES))
        edge = FakeEdge()
        listen = HttpListen(cors_origins=list(origins))
        return Wire(make_site(edge, lambda: KeyRing([key]), listen, Metrics(edge), Clock()), text)
    return make


def test_without_origins_no_page_is_answered(make_wire):
    wire = make_wire()
    answer = wire.call("GET", MODELS, origin=PAGE)
    assert answer.status == 200
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert wire.call("OPTIONS", "/v1/chat/completions", origin=PAGE).status == 405


def test_a_configured_page_may_read_answers_and_refusals(make_wire):
    wire = make_wire(PAGE)
    for path, key, status in ((MODELS, wire.key, 200), (MODELS, "wrong", 401), ("/v1/nothing", wire.key, 404)):
        wire.key = key
        answer = wire.call("GET", path, origin=PAGE)
        assert (answer.status, answer.headers[ALLOW], answer.headers["vary"]) == (status, PAGE, "Origin")
        assert "x-iop-run-id" in answer.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in answer.headers


def test_another_page_is_not_named(make_wire):
    answer = make_wire(PAGE).call("GET", MODELS, origin=OTHER)
    assert ALLOW not in answer.headers


def test_the_management_api_stays_closed_to_pages(make_wire):
    wire = make_wire(PAGE)
    assert ALLOW not in wire.call("GET", "/api/v1/nodes", origin=PAGE).headers
    assert wire.call("OPTIONS", "/api/v1/nodes", origin=PAGE).status == 405


def test_a_preflight_needs_no_key_and_allows_the_headers_that_were_asked_for(make_wire):
    wire = make_wire(PAGE)
    wire.key = ""
    answer = wire.call("OPTIONS", "/v1/chat/completions", origin=PAGE, access_control_request_method="POST",
                       access_control_request_headers="authorization,x-stainless-os")
    assert (answer.status, answer.headers[ALLOW], answer.headers["access-control-allow-methods"]) == (204, PAGE, "POST")
    assert answer.headers["access-control-allow-headers"] == "authorization,x-stainless-os"
    answer = wire.call("OPTIONS", "/v1/models/org/big", origin=OTHER, access_control_request_headers="x: y")
    assert (answer.status, ALLOW in answer.headers, "access-control-allow-headers" in answer.headers) == (204, False, False)


@pytest.mark.parametrize("origin", ["*", "https://*", "chat.example", "https://chat.example/", "null"])
def test_an_origin_is_exact(origin, tmp_path):
    path = tmp_path / "edge.yaml"
    path.write_text(f"listen: {{http: {{cors_origins: ['{origin}']}}}}\n")
    with pytest.raises(ConfigError, match="cors_origins"):
        load_edge(path)
