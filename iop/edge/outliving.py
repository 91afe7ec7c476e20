"""Work that its caller may leave: cancelling the wait for it does not interrupt it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from iop.errors import IOPError

log = Logger()
T = TypeVar("T")


def outliving(work: Deferred[T], late: Callable[[T], object]) -> Deferred[T]:
    """A Deferred of what `work` gives. Where it is cancelled, `work` goes on, and `late(result)` is called instead."""
    given_up: list[bool] = []
    waiting: Deferred[T] = Deferred(lambda _: given_up.append(True))

    def done(result: T) -> None:
        if given_up:
            late(result)
        else:
            waiting.callback(result)

    def failed(failure: Failure) -> None:
        if not given_up:
            waiting.errback(failure)
        elif failure.check(IOPError):
            log.info("what nobody waits for any more was refused: {trouble}", trouble=failure.getErrorMessage())
        else:
            log.failure("what nobody waits for any more failed", failure)

    work.addCallbacks(done, failed).addErrback(_fault)
    return waiting


def _fault(failure: Failure) -> None:
    log.failure("after what nobody waits for any more", failure)
