from __future__ import annotations

import pytest

from iop.edge.drainrate import MOST_S, DrainRate


def test_the_drain_rate_follows_departures() -> None:
    rate = DrainRate()
    assert rate.rate(5.0) == rate.wait_s(3, 5.0) == 0.0
    for number in range(400):
        rate.departed(number * 0.5)
    assert rate.rate(199.5) == pytest.approx(2.0, rel=0.05)
    assert rate.wait_s(10, 199.5) == pytest.approx(5.0, rel=0.05)


def test_a_queue_that_stands_still_is_waited_for_longer_and_longer() -> None:
    rate = DrainRate()
    for number in range(60):
        rate.departed(float(number))
    waits = [rate.wait_s(5, 59.0 + quiet) for quiet in (0, 30, 60, 3600)]
    assert waits == sorted(waits) and waits[-1] == MOST_S


def test_the_first_departures_already_tell_a_rate() -> None:
    rate = DrainRate()
    for number in range(5):
        rate.departed(100.0 + number)
    assert rate.rate(104.0) == pytest.approx(1.0, rel=0.35)
