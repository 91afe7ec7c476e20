"""What adapters are, and what they are given."""

from __future__ import annotations

from zope.interface import Attribute, Interface


class IAdapterFactory(Interface):
    """A Twisted plugin (of the package iop.adapters) that knows one kind of backend."""

    name = Attribute("str: the adapter's name in configurations and requests, e.g. 'cli'.")
    default_concurrency = Attribute("int: runs at once when the configuration names no number.")

    def settings(target):
        """Validate one TargetConfig and return the adapter's own settings object for it.

        Pure: starts, opens and fetches nothing. Raises ConfigError with a sentence that names the key and what is allowed.
        """

    def requirements(settings):
        """What the machine's owner must allow for these settings: a list of Program and Upstream (iop.requirements).

        Pure. The node's policy judges it before the target is accepted and again before each run.
        """

    def build(targets, tools):
        """An IAdapter for {target name: settings}, with IAdapterTools. Called once per accepted configuration."""


class IAdapterTools(Interface):
    """What an adapter is given to work with."""

    clock = Attribute("IReactorTime.")
    reactor = Attribute("IReactorTCP and IReactorTime, for HTTP.")
    spawner = Attribute("ISpawner.")
    servers = Attribute("IServers.")

    def workdir(run_id):
        """A private folder (0700) for one run, made by the node. Raises AdapterError when the disk takes none."""

    def environment():
        """dict: the whole environment a program starts from (PATH, HOME, LANG, TERM, TMPDIR and what the policy adds)."""

    def require(requirements):
        """Raise PolicyDenied unless the policy allows these now. The adapter calls it right before it starts anything."""


class IAdapter(Interface):
    """One backend, configured. A new configuration builds a new one; the old one ends its runs and is then closed."""

    def execute(spec, sink):
        """Carry out an ExecutionSpec, telling what happens to an IRunSink; returns an IExecution at once.

        Never raises for what a backend or program does: that is an outcome.
        """

    def close():
        """Let go of what it holds (connection pools). A Deferred that fires when that is done; all runs have ended."""


class IExecution(Interface):
    """One execution under way. It is also the producer that back-pressure pauses."""

    finished = Attribute(
        "Deferred of (kind, Outcome): kind is 'completed', 'failed', 'cancelled' or 'unknown'. Fires once, after the "
        "last emit and after nothing of the execution is left running. A failure means a fault of the adapter itself.")
    stop_s = Attribute("float: the longest that a stop may take; the run then ends without waiting for `finished`.")

    def stop(error):
        """End it because of `error` (an IOPError: Cancelled, RunTimeout, ...); idempotent.

        The outcome is 'cancelled' for Cancelled and 'failed' with the error's code otherwise, unless it had ended already.
        """

    def pauseProducing():
        """Emit nothing until resumed; whatever feeds it must feel that (a pipe or socket that is not read)."""

    def resumeProducing():
        """Go on."""


class IOffersInput(Interface):
    """An IAdapterFactory some of whose executions are ITakesInput; the edge refuses input to all others."""

    def takes_input(settings):
        """Whether the runs of a target with these settings are. Pure."""


class IOwnsServers(Interface):
    """An IAdapterFactory some of whose targets say how their server is started."""

    def server(settings):
        """The ServerSpec (iop.servers) of these settings, None where the server is somebody else's. Pure."""


class ITakesInput(Interface):
    """An IExecution that more input can be given to."""

    def write(data, end):
        """Bytes for the program's standard input; `end` closes it. Raises InvalidRequest when it is closed already."""


class IResumes(Interface):
    """An IAdapter whose runs can outlive the node that started them."""

    def resume(spec, sink, mark):
        """Take up a run that an earlier start of this node began; returns an IExecution at once.

        `mark` came with the last emit that the spool has, b"" when it has none: go on exactly behind it. When nothing
        is left to take up, the execution says so by its ending.
        """


class IOutlives(Interface):
    """An IExecution whose source keeps what it gave until it is safe elsewhere."""

    def kept(mark):
        """All that was emitted up to the emit with this mark is in the node's spool."""


class IHealth(Interface):
    """An IAdapter that can tell whether its backend is there."""

    doubtful = Attribute("bool: runs have shown what a check would tell; it is better not to wait for the next round.")

    def check():
        """A Deferred of {target name: TargetHealth (iop.servers)}. Never fails, takes at most 5 s."""


class IModels(Interface):
    """An IAdapter whose backends load, unload and fetch models when they are told to, as Ollama does.

    `url` is where its server listens, without a path, where the node owns that; empty: the target's own.
    """

    def load(target, url):
        """A Deferred that fires once the model of a target is in memory; fails with UpstreamError."""

    def unload(target, url):
        """The same for out of it."""

    def pull(target, url, model, told):
        """Fetch a model to where the target's model is: a Deferred that fires once it is there; fails with NotFound, or
        UpstreamError. `told(detail, progress)` hears how far it is. Cancelling it ends the pull.
        """


class IRunSink(Interface):
    """Where an execution tells what happens."""

    def emit(events, mark=b""):
        """RuntimeEvents in order, none of them terminal: all that arose in one read or one reactor turn.

        `mark` is the execution's own word for its place behind them (IResumes); kept with them, all or nothing.
        Never fails and never blocks; pauses the execution when too much is un-acknowledged.
        """
