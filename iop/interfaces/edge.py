"""Everything that can be asked of an edge."""

from __future__ import annotations

from zope.interface import Attribute, Interface


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

        Without an adapter, `request.target` is a model's name, as targets() takes it: of the targets that it means, one is
        chosen. With one, it may also be 'node/adapter/target'. Fails with InvalidRequest, NoSuchTarget, QueueFull,
        HistoryUnavailable or Draining, and with Forbidden, RateLimited and QuotaExhausted of the principal's keys.
        """

    def cancel(run_id, source, reason=""):
        """Ask for the end of a run; fires with its RunRecord as it is now. Idempotent; fails with NoSuchRun."""

    def forget(run_id, source):
        """Have the model APIs not tell of a run any more (RunRecord.forgotten); the record itself stays.

        Fires once history has it; fails with NoSuchRun, and with Conflict while the run has not ended."""

    def attend(run_id):
        """One more client for which a run is (several may share one by their Idempotency-Key). Returns nothing."""

    def abandon(run_id, source, reason):
        """A client that a run was for has left. Was it the last one, the run is ended at once, also while history cannot be
        written. Returns nothing.

        Nobody asked for anything, so nothing is audited; the run's own ending tells why. Idempotent; nothing happens to a
        run that has ended or is not known.
        """

    def give_input(run_id, data, end, source):
        """More input for a running program."""

    def position(run_id):
        """Where a run stands in the queue now, from 1, among those that wait for the same; 0 when it does not wait."""

    def run(run_id):
        """Fires with the RunRecord as it is now; fails with NoSuchRun."""

    def runs(query):
        """Fires with ([RunRecord], next cursor or '')."""

    def usage(query):
        """Fires with [UsageRow] for a UsageQuery (iop.records), the most tokens first."""

    def verify(run_id):
        """Recompute from history whether it has the run whole; fires with Findings (iop.wholeness). Fails with NoSuchRun,
        and with HistoryUnavailable when what the run did is not stored within 10 s."""

    def late(run_id, after):
        """Fires with EventBatches that came after a run's ending and are kept apart, behind an EventId, in order: a page,
        empty when there are no more. They may overlap. Fails with NoSuchRun."""

    def cursor(run_id, after):
        """Fires with an IRunCursor behind the EventId; fails with NoSuchRun."""

    def models():
        """[ModelEntry] (iop.records), from memory."""

    def resolve(model):
        """(adapter, target, node_id or '') for a model name, the first of targets(); raises NoSuchTarget. An exact alias
        wins, then adapter/target, then node/adapter/target."""

    def targets(model):
        """All that a model name means, as [(adapter, target, node_id or '')]: several where an alias is carried by several
        targets. Raises NoSuchTarget."""

    def permits(principal, model):
        """bool: whether the principal's keys may use what a model name means; raises NoSuchTarget."""

    def ready(model):
        """bool: whether some node could begin a run of what a model name means, were it free; raises NoSuchTarget."""

    def allowance(principal):
        """What is left of the requests and tokens a minute of a principal's keys, as the x-ratelimit-* headers of OpenAI's
        API; {} where its keys have no such limit."""

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
