"""What is told of a link: that it is down, was refused or is not trusted, and who broke its rules."""

from __future__ import annotations

from iop.errors import IOPError


class LinkDown(IOPError):
    """The node's link is down."""

    code = "link_down"
    retryable = True


class LinkRefused(IOPError):
    """The peer refused the link."""

    code = "link_refused"

    def __init__(self, message: str = "", *, code: str = "link_refused", retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.code = code  # the peer's own word
        self.retry_after_s = retry_after_s


class LinkUntrusted(IOPError):
    """The peer at the other end of the link could not be verified; nothing was sent to it."""

    code = "link_untrusted"
    default_hint = "Look at `edge.ca`, `edge.pin` and `edge.name` in node.yaml, and at the edge's certificate."


class ProtocolError(IOPError):
    """The rules of the link were broken."""

    code = "protocol_error"


class LocalProtocolError(ProtocolError):
    """This process tried to send what the rules of the link do not allow now; that is a fault of IOP."""

    code = "local_protocol_error"


class RemoteProtocolError(ProtocolError):
    """The peer sent what the rules of the link do not allow; the link is closed.

    `code` says which rule: decode_error, out_of_state, frame_too_large, transfer_too_large, too_many, handshake_timeout.
    """

    code = "protocol_violation"

    def __init__(self, message: str = "", *, code: str = "protocol_violation") -> None:
        super().__init__(message)
        self.code = code  # the rule that was broken
