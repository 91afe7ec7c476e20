"""Model servers that a node starts itself."""

from __future__ import annotations

from zope.interface import Attribute, Interface


class IServers(Interface):
    """The model servers of one node: started when a run needs one, shared by all that do, ended when none has for a while."""

    def use(spec, told):
        """A Deferred of an IServerUse once the server of this ServerSpec (iop.servers) answers its health check.

        Starts it when it does not run; makes room first when the memory budget asks for it. `told(detail, progress)` is
        called meanwhile, whenever there is something new to say. Cancelling the Deferred gives up the wait, not the server.
        Fails with AdapterError or PolicyDenied, whose message ends with the server's last words.
        """

    def state(spec):
        """str: "cold", "starting", "warm" or why it cannot run, a sentence."""

    def url(spec):
        """str: where it listens, without a path; "" unless it is warm."""


class IServerUse(Interface):
    """One run's hold on a running server; while there is one, the server is not unloaded."""

    url = Attribute("str: where it listens, without a path.")

    def release():
        """The run needs it no more. Idempotent."""

    def cut_off():
        """A request got no answer: the server is looked at before anyone else is sent there, and ended if it is of no use."""
