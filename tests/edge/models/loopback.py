"""A site with all model APIs on a real port, for the official clients, which bring their own connections."""

import pytest_twisted
from twisted.internet import reactor

from iop.config import HttpListen
from iop.edge.routes import make_site
from iop.keys import SCOPES, KeyRing, make_key
from iop.metrics import Metrics
from iop.testing.edge import FakeEdge


class Loopback:
    """In front of a fake edge; whoever makes it stops it. `key` may do everything."""

    def __init__(self):
        self.edge = FakeEdge()
        key, self.key = make_key("api", "op", list(SCOPES))
        self._site = make_site(self.edge, lambda: KeyRing([key]), HttpListen(), Metrics(self.edge, reactor), reactor)
        self._port = reactor.listenTCP(0, self._site, interface="127.0.0.1")
        self.address = ("127.0.0.1", self._port.getHost().port)
        self.url = f"http://127.0.0.1:{self.address[1]}"

    def stop(self):
        self._site.disconnect_all()
        pytest_twisted.blockon(self._port.stopListening())


def raised(error_type, call):
    """What an API call raises."""
    try:
        call()
    except error_type as error:
        return error
    raise AssertionError("it did not fail")
