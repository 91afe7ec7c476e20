"""What the console's streams give, beside what the HTTP face gives of the same."""

from twisted.internet.task import Clock

from iop.config import HttpListen
from iop.edge.routes import make_site
from iop.edge.streams import LifeStream
from iop.keys import SCOPES, KeyRing, make_key
from iop.metrics import Metrics
from iop.testing.edge import FakeEdge
from iop.testing.web import Wire


def test_a_lifecycle_event_looks_alike_at_every_face() -> None:
    edge = FakeEdge()
    edge.happened("run_ended", detail=b'{"code": "ok"}')
    edge.happened("edge_started")
    key, text = make_key("api", "op", list(SCOPES))
    site = make_site(edge, lambda: KeyRing([key]), HttpListen(), Metrics(edge), Clock())
    shown: list[dict] = []
    LifeStream(edge, None, 10, follow=False).start(shown.extend, lambda error: None)
    assert len(shown) == 2
    assert Wire(site, text).call("GET", "/api/v1/events").json["events"] == shown
