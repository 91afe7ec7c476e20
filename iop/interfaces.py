"""The seams of the house. Everything here says what happens when nothing is found, and when a Deferred fires."""

from __future__ import annotations

from zope.interface import Attribute, Interface

# --- adapters -------------------------------------------------------------------------------------------------------


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


class ITakesInput(Interface):
    """An IExecution that more input can be given to."""

    def write(data, end):
        """Bytes for the program's standard input; `end` closes it. Raises InvalidRequest when it is closed already."""


class IHealth(Interface):
    """An IAdapter that can tell whether its backend is there."""

    def check():
        """A Deferred of {target name: "" when ready, else a sentence why not}. Never fails, takes at most 5 s."""


class IRunSink(Interface):
    """Where an execution tells what happens."""

    def emit(events):
        """RuntimeEvents in order, none of them terminal: all that arose in one read or one reactor turn.

        Never fails and never blocks; pauses the execution when too much is un-acknowledged.
        """


class ISpawner(Interface):
    """Starts a program in a session of its own and ends all of it."""

    def spawn(program, receiver):
        """Start a SpawnRequest (iop.spawning); returns an IProgram at once; a missing program is told to the receiver."""


class IProgram(Interface):
    """One program under way."""

    pid = Attribute("int, or 0 when it did not start.")

    def write(data):
        """Bytes for its standard input."""

    def close_input():
        """End of its standard input."""

    def stop():
        """INT, TERM, KILL to its group with the times of the request, until none is left; idempotent."""

    def pause():
        """Stop reading its pipes."""

    def resume():
        """Read them again."""


class IProgramReceiver(Interface):
    """What a program does, told in order: started or failed, output, ended."""

    def program_started(pid):
        """It runs."""

    def output_received(channel, data):
        """Bytes of standard output or error (CHANNEL_STDOUT, CHANNEL_STDERR)."""

    def program_ended(ending):
        """A ProgramEnding (iop.spawning): exit code, signal, error, steps, processes left. Called once, last, always."""


# --- the link -------------------------------------------------------------------------------------------------------


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


# --- history --------------------------------------------------------------------------------------------------------


class IHistory(Interface):
    """The edge's durable memory. Every Deferred fires on the reactor thread; failures are HistoryUnavailable.

    Writes are committed in the order of the calls; what stands in the queue when a commit ends is the next commit.
    """

    available = Attribute("bool: whether the last commit went through.")

    def open():
        """Connect and migrate; fires when ready."""

    def close():
        """Commit what is queued, then let go."""

    def backlog():
        """int: writes that are queued and not committed."""

    def create_run(record):
        """Insert a RunRecord (iop.records). Fires with the record stored, which is the earlier one when its
        idempotency_key was used by the same principal in the last 24 hours."""

    def update_run(run_id, changes):
        """Set columns of a run; fires after the commit."""

    def append(rows):
        """Append BatchRows (iop.records), each with the changes of its run, in one transaction. Fails with Conflict when one
        of them can never be stored; the others of that commit are."""

    def append_late(run_id, attempt, first_seq, last_seq, packed):
        """Keep a batch of a closed attempt apart."""

    def run(run_id):
        """Fires with the RunRecord; fails with NoSuchRun."""

    def runs(query):
        """Fires with ([RunRecord], next cursor or ''), newest first, for a RunQuery (iop.records)."""

    def open_runs():
        """Fires with the RunRecords that have not ended."""

    def batches(run_id, after, limit_bytes):
        """Fires with [packed] of a run behind an EventId, in order: whole batches, at least one when there is one,
        stopping once limit_bytes is passed. The first may begin before `after`."""

    def committed(run_id, attempt):
        """Fires with the last committed sequence number, 0 when none."""

    def append_event(event):
        """Store an EdgeNodeEvent; fires with its event_id."""

    def events(after, limit):
        """Fires with [EdgeNodeEvent] behind an event_id, in order; with after None, the latest `limit`."""

    def audit(source, action, detail):
        """Write an audit line; fires after the commit, so that the action may begin."""

    def sessions():
        """Fires with [SessionRecord]."""

    def put_session(record):
        """Insert or replace a SessionRecord."""

# --- the edge -------------------------------------------------------------------------------------------------------


class IRunCursor(Interface):
    """One reader's place in the log of one run. A reader pulls when it can take more; it never makes the edge buffer."""

    after = Attribute("EventId: the last event taken.")
    ended = Attribute("bool: the run's ending has been taken; nothing will come any more.")

    def take(limit_bytes):
        """Entries behind `after` (iop.edge.runlog.Entry), in order, at least one when there is one.

        A list, empty when there is nothing now; or a Deferred of a list while it catches up from history.
        """

    def notify(callback):
        """Have `callback()` called when there may be something to take, at most once a read of the node's link."""

    def close():
        """The reader is gone."""


class IEdgeService(Interface):
    """Everything that can be asked of an edge: the one contract behind every face.

    `source` (run_pb2.Source) says who asks; what changes something is audited before it is done. Failures are IOPErrors.
    """

    edge_id = Attribute("str.")

    def submit(request, source, idempotency_key=None):
        """Accept a RunRequest without run_id and attempt; fires with its RunRecord once history has it.

        `request.target` may be 'node/adapter/target' resolved before by resolve(). Fails with InvalidRequest,
        NoSuchTarget, QueueFull, HistoryUnavailable or Draining.
        """

    def cancel(run_id, source, reason=""):
        """Ask for the end of a run; fires with its RunRecord as it is now. Idempotent; fails with NoSuchRun."""

    def abandon(run_id, source, reason):
        """Whoever a run was for has left: end it at once, also while history cannot be written. Returns nothing.

        Nobody asked for anything, so nothing is audited; the run's own ending tells why. Idempotent; nothing happens to a
        run that has ended or is not known.
        """

    def give_input(run_id, data, end, source):
        """More input for a running program."""

    def run(run_id):
        """Fires with the RunRecord as it is now; fails with NoSuchRun."""

    def runs(query):
        """Fires with ([RunRecord], next cursor or '')."""

    def cursor(run_id, after):
        """Fires with an IRunCursor behind the EventId; fails with NoSuchRun."""

    def models():
        """[ModelEntry] (iop.records), from memory."""

    def resolve(model):
        """(adapter, target, node_id or '') for a model name; raises NoSuchTarget. An exact alias wins, then
        adapter/target, then node/adapter/target."""

    def nodes():
        """[NodeView] (iop.records), from memory."""

    def node(node_id):
        """One NodeView; raises NoSuchNode."""

    def label(node_id, changes, source):
        """Set labels (a value of None removes one); fires with the NodeView."""

    def drain(node_id, draining, source):
        """Give the node no new runs (or again); fires with the NodeView."""

    def command(node_id, line, source, timeout_s=30.0):
        """Send a NodeCommandRequest; fires with the NodeCommandResponse; fails with NoSuchNode, LinkDown, CommandTimeout."""

    def sessions():
        """Fires with [SessionRecord]."""

    def close_session(session_id, source):
        """No further run may continue it; fires with the SessionRecord."""

    def events(after, limit):
        """Lifecycle events behind an event_id (None: the latest): fires with [EdgeNodeEvent], in order."""

    def watch(callback):
        """Have callback(EdgeNodeEvent) called for each new lifecycle event once it is durable; returns a function that
        ends it."""

    def health():
        """dict: {"ready": bool, "reasons": [sentence], "reactor_lag_ms", "history_backlog", "nodes_up", "runs_open"}."""


# --- commands -------------------------------------------------------------------------------------------------------


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
