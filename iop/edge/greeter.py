"""Who may come in on a link: the nodes whose tokens are known, each under its own id only."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from zope.interface import implementer

from iop.edge.nodes import Desk, NodeLink
from iop.errors import AuthFailed, Draining
from iop.interfaces import IGreeter
from iop.keys import KeyRing
from iop.proto.link_pb2 import Hello
from iop.proto.run_pb2 import Source

_NOT_YOURS = "The token is not known here, or is another node's; make one with `iop keys new node ID` where the edge runs."


@implementer(IGreeter)
class NodeGreeter:
    """Lets in the nodes whose tokens are in the key ring, each under its own id only."""

    def __init__(self, keyring_of: Callable[[], KeyRing], desk: Desk) -> None:
        self._keyring_of = keyring_of
        self._desk = desk
        self.closed = False              # the edge is stopping

    def greet(self, hello: Hello, remote: str) -> Deferred[NodeLink]:
        return Deferred.fromCoroutine(self._greet(hello, remote))

    async def _greet(self, hello: Hello, remote: str) -> NodeLink:
        if self.closed:
            raise Draining("The edge is stopping.")
        try:
            key = self._keyring_of().verify("node", hello.token)
        except AuthFailed:
            raise AuthFailed(_NOT_YOURS) from None
        if key.owner != hello.peer_id:
            # A stolen or misplaced token: the only refusal of which the audit trail is told, since anyone can cause the
            # others, as often as they like.
            await self._desk.history.audit(
                Source(face="node", principal=key.owner, request_id=hello.instance), "node_refused",
                {"keyid": key.keyid, "owner": key.owner, "claimed": hello.peer_id, "remote": remote})
            self._desk.bus.tell("node_refused", node_id=key.owner, claimed=hello.peer_id, remote=remote)
            raise AuthFailed(_NOT_YOURS)
        return NodeLink(self._desk, self._desk.registry.known(hello.peer_id), key, hello)
