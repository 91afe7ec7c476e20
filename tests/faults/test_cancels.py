"""Cancels of programs that fork, change their session, scrub their environment and ignore signals."""

from __future__ import annotations

import asyncio

from tests.faults.cancels import WAYS, run, words


def test_nothing_survives_a_cancel_whatever_it_does():
    tally = asyncio.run(run(2 * len(WAYS), 1))
    assert (tally.survivors, tally.wrong) == ([], []), words(tally)
    assert tally.endings == {"cancelled cancelled": 2 * len(WAYS)}
