"""Request and reply over a link: who waits for which answer, and how long."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from iop.errors import CommandTimeout, Conflict, QueueFull
from iop.interfaces import ILink
from iop.link.errors import LinkDown

PENDING = 1_000                      # unanswered calls of one process; each holds a Deferred and a timer


class _Call:
    __slots__ = ("answer", "link", "timer")

    def __init__(self, link: ILink, answer: Deferred[Any], timer: IDelayedCall) -> None:
        self.link = link
        self.answer = answer
        self.timer = timer


class Calls:
    """The unanswered calls of a process, by call id."""

    def __init__(self, clock: IReactorTime, limit: int = PENDING) -> None:
        self._clock = clock
        self._limit = limit
        self._calls: dict[str, _Call] = {}

    @property
    def pending(self) -> int:
        return len(self._calls)

    def ask(self, link: ILink, kind: str, message: Any, call_id: str, timeout_s: float) -> Deferred[Any]:
        """Send a request; fires with its reply.

        Fails with CommandTimeout, with LinkDown when the link goes first, Conflict when the id is in use, QueueFull, or what
        `link.send` raises. Cancelling it forgets the call; a reply that comes later still is ignored.
        """
        if call_id in self._calls:
            raise Conflict(f"A call with the id {call_id} is under way.")
        if len(self._calls) >= self._limit:
            raise QueueFull(f"{self._limit} calls are unanswered; no more are sent.")
        link.send(kind, message)
        answer: Deferred[Any] = Deferred(lambda _: self._take(call_id))
        timer = self._clock.callLater(timeout_s, self._fail, call_id,
                                      CommandTimeout(f"{link.peer_id} did not answer within {timeout_s:g} s."))
        self._calls[call_id] = _Call(link, answer, timer)
        return answer

    def answered(self, call_id: str, reply: Any, link: ILink | None = None) -> bool:
        """Hand a reply to who waits for it; False when nobody does, or when it came over another link than the request."""
        call = self._calls.get(call_id)
        if call is None or (link is not None and link is not call.link):
            return False
        self._take(call_id)
        call.answer.callback(reply)
        return True

    def link_down(self, link: ILink) -> None:
        """Fail all that was asked over this link."""
        for call_id in [call_id for call_id, call in self._calls.items() if call.link is link]:
            self._fail(call_id, LinkDown(f"The link to {link.peer_id} went down before the answer."))

    def _fail(self, call_id: str, error: Exception) -> None:
        call = self._take(call_id)
        if call is not None:
            call.answer.errback(error)

    def _take(self, call_id: str) -> _Call | None:
        call = self._calls.pop(call_id, None)
        if call is not None and call.timer.active():
            call.timer.cancel()
        return call
