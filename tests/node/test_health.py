"""When a node looks at its backends."""

from __future__ import annotations

from twisted.internet.task import Clock

from iop.node.health import AWAY_EVERY_S, CHECK_EVERY_S, HealthWatch
from iop.node.offers import Offers
from tests.node.fakes import HandFactory, config, make_tools, target


def test_a_backend_whose_runs_show_that_it_is_broken_is_looked_at_soon() -> None:
    factory, clock, told = HandFactory(), Clock(), []
    offers = Offers([], make_tools(clock), lambda: [factory])
    offers.apply(config(target("a")))
    watch = HealthWatch(clock, lambda: offers.backends, lambda: told.append(clock.seconds()))
    watch.start()
    clock.advance(AWAY_EVERY_S)
    clock.advance(CHECK_EVERY_S)
    before, adapter = len(told), factory.built[0]
    adapter.health["a"] = "Its runs fail."
    clock.advance(AWAY_EVERY_S)
    assert len(told) == before, "it is not looked at in each short round"
    adapter.doubtful = True
    clock.advance(AWAY_EVERY_S)
    assert len(told) == before + 1 and watch.of(offers.backends["hand"], "a").why_not == "Its runs fail."
    watch.stop()
