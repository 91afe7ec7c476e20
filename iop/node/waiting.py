"""Waiting for what others wait for as well, without a part in its result."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred


def after(source: Deferred[None]) -> Deferred[None]:
    """A Deferred of one's own that fires when `source` succeeds; never, where that fails."""
    notice: Deferred[None] = Deferred()

    def passed(value: None) -> None:
        notice.callback(None)

    source.addCallback(passed)
    return notice


def at_most(source: Deferred[Any], limit_s: float, clock: Any) -> Deferred[None]:
    """Fires when `source` has fired, or after `limit_s`; takes a failure of it."""
    notice: Deferred[None] = Deferred()
    timer = clock.callLater(limit_s, notice.callback, None)

    def done(value: Any) -> None:
        if timer.active():
            timer.cancel()
            notice.callback(None)

    source.addBoth(done)
    return notice
