"""A link's end: the session's rules over a transport, handing frames to a role's ILinkHandler.

The listener's and the dialer's ends differ only in their host (LinkListener, LinkDialer), which greets.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IHandshakeListener, IReactorTime, ISSLTransport, ITCPTransport
from twisted.logger import Logger
from twisted.protocols.basic import Int32StringReceiver
from twisted.python.failure import Failure
from zope.interface import implementer

from iop.errors import IOPError
from iop.interfaces import ILink
from iop.link.errors import LinkDown, RemoteProtocolError
from iop.link.seal import Seals, sealed
from iop.link.session import GREETED, OVER, Session
from iop.link.tcp import looks_like, remote_of, tune
from iop.proto.link_pb2 import Goodbye, LinkLimits, Ping, Pong, Reject

ABORT_AFTER_S = 5.0                  # a peer that takes nothing would keep loseConnection waiting for ever
MESSAGE_CHARS = 500                  # of a reason sent to the peer

_length = struct.Struct("!I").unpack_from


class Host(Protocol):
    """Whose link it is: a LinkListener or a LinkDialer."""

    def link_opened(self, link: LinkProtocol) -> None:
        """The transport stands, TLS included: the first moment to send anything."""

    def greeting_received(self, link: LinkProtocol, kind: str, message: Any) -> None:
        """Hello, Welcome or Reject, allowed now."""

    def protocol_broken(self, link: LinkProtocol, error: RemoteProtocolError) -> None:
        """The peer broke a rule; the link is being closed."""

    def link_closed(self, link: LinkProtocol, reason: IOPError, failure: Failure | None) -> None:
        """Gone, greeted or not; called once. `failure` is the transport's, when it had one."""


@implementer(ILink, IHandshakeListener)
class LinkProtocol(Int32StringReceiver):
    """ILink over an Int32StringReceiver."""

    log = Logger()
    noisy = False

    def __init__(self, session: Session, host: Host, clock: IReactorTime) -> None:
        self.peer_id = ""
        self.epoch = 0
        self.remote = ""
        self.opened = False          # the transport stands, TLS included
        self.session = session
        self.MAX_LENGTH = session.max_length
        self._host = host
        self._clock = clock
        self._handler: Any = None
        self._frames = 0             # handed over in this read
        self._reason: IOPError | None = None
        self._closed = False
        self._abort_call: Any = None
        self._nonces = itertools.count(1)
        self._probes: dict[int, Deferred[None]] = {}
        self._seals = Seals()

    @property
    def limits(self) -> LinkLimits:
        return self.session.limits

    # --- the transport --------------------------------------------------------------------------------------------

    def connectionMade(self) -> None:
        self.remote = remote_of(self.transport)
        if ITCPTransport.providedBy(self.transport):
            tune(self.transport)
        if not ISSLTransport.providedBy(self.transport):
            self.handshakeCompleted()

    def handshakeCompleted(self) -> None:
        """TLS, if any, stands and the peer is who it should be: until here, not a byte of ours was sent."""
        self.opened = True
        self._host.link_opened(self)

    def dataReceived(self, data: bytes) -> None:
        """The framing of Int32StringReceiver, in half of its time: an edge does this for every token that passes."""
        if self.session.state in OVER:
            return
        if self._unprocessed:
            data = self._unprocessed + data
        start, size = 0, len(data)
        while size - start >= 4:
            (length,) = _length(data, start)
            if length > self.MAX_LENGTH:
                self._too_long(length, data[start:start + 4])
                break
            end = start + 4 + length
            if end > size:
                break
            self.stringReceived(data[start + 4:end])
            start = end
        self._unprocessed = data[start:]
        if self._frames:
            self._frames = 0
            if self._handler is not None:
                self._tell(self._handler.read_finished)
        if self.session.state in OVER:
            self._unprocessed = b""

    def sendString(self, string: bytes) -> None:
        """One encoded Frame."""
        self.transport.write(sealed(string))

    def stringReceived(self, string: bytes) -> None:
        try:
            received = self.session.receive(self._seals.opened(string))
        except RemoteProtocolError as error:
            self._broken(error)
            return
        if received is None:
            return
        kind, message, packed = received
        own = _OWN.get(kind)
        if own is not None:
            own(self, kind, message)
            return
        self._frames += 1
        self._tell(self._handler.frame_received, kind, message, packed)

    def _too_long(self, length: int, start: bytes) -> None:
        if self.session.state in OVER:
            return
        self._broken(RemoteProtocolError(
            f"The peer announced a frame of {length} bytes (it begins with {start!r}{looks_like(start)}); "
            f"at most {self.MAX_LENGTH} are allowed now.", code="frame_too_large"))

    def connectionLost(self, reason: Failure) -> None:
        self._gone(self._reason or LinkDown(f"The connection was lost: {_sentence(reason)}"), reason)

    # --- ILink ----------------------------------------------------------------------------------------------------

    def send(self, kind: str, message: Any) -> None:
        for string in self.session.encode(kind, message):
            self.sendString(string)

    def send_packed(self, kind: str, packed: bytes) -> None:
        for string in self.session.encode_packed(kind, packed):
            self.sendString(string)

    def close(self, code: str, message: str) -> None:
        """Say Goodbye, where it is greeted, and close; the transport is aborted 5 s later where it still stands."""
        if self.session.state in OVER:
            return
        self._reason = self._reason or LinkDown(f"Closed on this side ({code}): {message}")
        if self.session.state in GREETED:
            self.send("goodbye", Goodbye(code=code, message=message[:MESSAGE_CHARS]))
        self._let_go()

    def abort(self, reason: IOPError) -> None:
        """End it at once, in this very call: the role hears link_down before it returns."""
        if not self._closed:
            self._reason = self._reason or reason
            self.transport.abortConnection()
            self._gone(reason, None)

    # --- for the host ---------------------------------------------------------------------------------------------

    def start(self, handler: Any, peer_id: str, epoch: int) -> None:
        """Greeted: from here on the role talks."""
        self._handler, self.peer_id, self.epoch = handler, peer_id, epoch
        self.MAX_LENGTH = self.session.max_length
        self._tell(handler.link_up)

    def refuse(self, code: str, message: str, retry_after_s: float) -> None:
        """Answer a Hello, or what stands for it, with Reject."""
        self._reason = self._reason or LinkDown(f"Refused ({code}): {message}")
        self.send("reject", Reject(code=code, message=message[:MESSAGE_CHARS], retry_after_s=retry_after_s))
        self._let_go()

    def probe(self) -> Deferred[None]:
        """Ping the peer; fires when this very ping is answered. The caller cancels when it has waited long enough."""
        nonce = next(self._nonces)
        answered: Deferred[None] = Deferred(lambda _: self._probes.pop(nonce, None))
        self._probes[nonce] = answered
        self.send("ping", Ping(nonce=nonce))
        return answered

    @property
    def up(self) -> bool:
        """Greeted, and not on its way out."""
        return self.session.state in GREETED

    def sweep(self, now_s: float) -> None:
        due = self.session.tick(now_s)
        if due == "ping":
            self.send("ping", Ping(nonce=next(self._nonces)))
        elif due == "dead":
            dead_after_s = self.limits.dead_after_s
            self.log.warn("the link with {peer} at {remote} is dead: nothing came for {dead_after_s} s", peer=self.peer_id,
                          remote=self.remote, dead_after_s=dead_after_s)
            self.abort(LinkDown(f"Nothing came from {self.peer_id} for {dead_after_s:g} s."))

    # --- inside ---------------------------------------------------------------------------------------------------

    def _greeting(self, kind: str, message: Any) -> None:
        self._host.greeting_received(self, kind, message)

    def _ping_received(self, kind: str, message: Ping) -> None:
        self.send("pong", Pong(nonce=message.nonce))

    def _pong_received(self, kind: str, message: Pong) -> None:
        waiting = self._probes.pop(message.nonce, None)
        if waiting is not None:
            waiting.callback(None)

    def _goodbye_received(self, kind: str, message: Goodbye) -> None:
        self._reason = self._reason or LinkDown(f"The peer closed the link ({message.code}): {message.message}")
        self.log.info("{peer} at {remote} closes the link ({code}): {text}", peer=self.peer_id, remote=self.remote,
                      code=message.code, text=message.message)
        self._let_go()

    def _broken(self, error: RemoteProtocolError) -> None:
        """The peer broke a rule: tell the host, then the peer, and close."""
        self._reason = self._reason or error
        self._host.protocol_broken(self, error)
        if self.session.state in GREETED:
            self.close(error.code, error.message)
        else:
            self._let_go()

    def _let_go(self) -> None:
        self.session.close()
        self.transport.loseConnection()
        if self._abort_call is None and not self._closed:
            self._abort_call = self._clock.callLater(ABORT_AFTER_S, self._abort_now)

    def _abort_now(self) -> None:
        self._abort_call = None
        self.transport.abortConnection()

    def _tell(self, method: Callable[..., None], *arguments: Any) -> None:
        """Call the role; a fault of its ends this link and nothing else."""
        try:
            method(self, *arguments)
        except Exception:
            self.log.failure("the role failed in {method} of the link with {peer}; the link is closed",
                             method=method.__name__, peer=self.peer_id)
            self.close("internal_error", "The other side failed inside; its log has the details.")

    def _gone(self, reason: IOPError, failure: Failure | None) -> None:
        if self._closed:
            return
        self._closed = True
        self.session.close()
        self._unprocessed = b""
        if self._abort_call is not None:
            self._abort_call.cancel()
            self._abort_call = None
        self._host.link_closed(self, reason, failure)
        handler, self._handler = self._handler, None
        if handler is not None:
            self._tell(handler.link_down, reason)
        for probe in list(self._probes.values()):
            probe.cancel()           # last: who waits for it lets a newcomer in at once


_OWN = {
    "hello": LinkProtocol._greeting,
    "welcome": LinkProtocol._greeting,
    "reject": LinkProtocol._greeting,
    "ping": LinkProtocol._ping_received,
    "pong": LinkProtocol._pong_received,
    "goodbye": LinkProtocol._goodbye_received,
}


def _sentence(reason: Failure) -> str:
    return reason.getErrorMessage() or reason.type.__name__
