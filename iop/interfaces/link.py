"""A link between a peer and its edge, and who listens to it."""

from __future__ import annotations

from zope.interface import Attribute, Interface


class ILink(Interface):
    """One live link, greeted. The same object on both sides, and on both kinds of link."""

    peer_id = Attribute("str: who is at the other end.")
    epoch = Attribute("int: grows with each link of the same peer.")
    limits = Attribute("LinkLimits in force.")
    remote = Attribute("str: the peer's address, for people.")

    def send(kind, message):
        """Send one Frame whose oneof member `kind` is `message`; in parts when it is large.

        Silently nothing after the link has closed. Raises LocalProtocolError when the state does not allow it, and
        TooLarge when it exceeds the largest transfer.
        """

    def send_packed(kind, packed):
        """The same for a message that is encoded already, of whose shape the sender is sure."""

    def close(code, message):
        """Say Goodbye and close; aborts after 5 s when the peer does not take it."""


class ILinkHandler(Interface):
    """A role's side of one link."""

    def link_up(link):
        """Greeted: the first thing a role may send is what the protocol allows now (RunsReport, or nothing)."""

    def frame_received(link, kind, message, packed):
        """One frame that the session's table allows now. `packed`: the encoded Frame, as received."""

    def read_finished(link):
        """All frames of one read have been handed over: the time to flush what they caused."""

    def link_down(link, reason):
        """Gone; `reason` is an IOPError. Called once, only after link_up."""


class IGreeter(Interface):
    """Decides on a Hello at the listening side."""

    def greet(hello, remote):
        """An ILinkHandler for this peer, or a Deferred of one. Raises an IOPError (AuthFailed, ...) to refuse it.

        Constant in time whether the peer is unknown or its token is wrong.
        """
