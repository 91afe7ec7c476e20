"""What a command gives that goes on."""

from __future__ import annotations

from zope.interface import Attribute, Interface


class IStream(Interface):
    """What a command gives that goes on (tail, events): a producer of items, pulled by whoever shows them."""

    note = Attribute("What people are told before the first item, a line without its end; may be empty.")

    def start(write, done):
        """Begin: `write(items)` is called with lists of JSON-able dicts, `done(error)` once, last, with an IOPError or None.

        Neither is called before start() has returned.
        """

    def stop():
        """The reader has enough: nothing is called any more, except done(), at most once. Idempotent."""

    def pause():
        """The reader takes no more now."""

    def resume():
        """It does again."""

    def text(item):
        """How one item looks to people: (channel, text), where channel is "out" or "err" and text is still unescaped."""
