"""Who is linked now, and which of two that claim to be the same peer may stay."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from iop.link.errors import LinkDown, LinkRefused
from iop.link.protocol import LinkProtocol

ANSWER_S = 2.0                       # how long an old link may take to prove that it lives
DUPLICATE_RETRY_S = 30.0


class Peers:
    """The live links of a listener, one for each peer id. `epoch`: the last one given out before."""

    log = Logger()

    def __init__(self, clock: IReactorTime, epoch: int = 0) -> None:
        self.epoch = epoch
        self._clock = clock
        self._links: dict[str, LinkProtocol] = {}
        self._challenged: set[str] = set()

    def get(self, peer_id: str) -> LinkProtocol | None:
        """The live link of a peer, or None."""
        return self._links.get(peer_id)

    def admit(self, peer_id: str) -> Deferred[None]:
        """Fires, at once where no link of this peer stands, when a newcomer may take its place.

        A standing link is pinged once. When it answers within 2 s this fails with LinkRefused (duplicate_node); when it does
        not, it is aborted. The caller joins in the same reactor turn.
        """
        return Deferred.fromCoroutine(self._admit(peer_id))

    def join(self, peer_id: str, link: LinkProtocol) -> int:
        """Enter a link that was admitted; its epoch."""
        if peer_id in self._links:
            raise _duplicate(peer_id)
        self.epoch += 1
        self._links[peer_id] = link
        return self.epoch

    def leave(self, peer_id: str, link: LinkProtocol) -> None:
        """The link is gone; nothing when another has taken its place."""
        if self._links.get(peer_id) is link:
            del self._links[peer_id]

    async def _admit(self, peer_id: str) -> None:
        old = self._links.get(peer_id)
        if old is None:
            return
        if peer_id in self._challenged:
            raise _duplicate(peer_id)
        self._challenged.add(peer_id)
        try:
            lives = await self._answers(old)
        finally:
            self._challenged.discard(peer_id)
        if lives and old.up:
            raise _duplicate(peer_id)
        if self._links.get(peer_id) is old:
            self.log.warn("the old link of {peer} at {remote} did not answer; a new one takes its place", peer=peer_id,
                          remote=old.remote)
            old.abort(LinkDown(f"A new link of {peer_id} took the place of this one, which did not answer."))

    async def _answers(self, link: LinkProtocol) -> bool:
        if not link.up:
            return False
        try:
            await link.probe().addTimeout(ANSWER_S, self._clock)
        except (CancelledError, TimeoutError):
            return False
        return True


def _duplicate(peer_id: str) -> LinkRefused:
    return LinkRefused(f"Another link of {peer_id} is up and answers; two nodes must not share an id.", code="duplicate_node",
                       retry_after_s=DUPLICATE_RETRY_S)
