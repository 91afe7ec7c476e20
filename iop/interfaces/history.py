"""What an edge keeps for good."""

from __future__ import annotations

from zope.interface import Attribute, Interface


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

    def usage(query):
        """Fires with [UsageRow] for a UsageQuery (iop.records), the most tokens first."""

    def open_runs():
        """Fires with the RunRecords that have not ended."""

    def batches(run_id, after, limit_bytes):
        """Fires with [packed] of a run behind an EventId, in order: whole batches, at least one when there is one,
        stopping once limit_bytes is passed. The first may begin before `after`."""

    def late(run_id, after, limit_bytes):
        """The same of what is kept apart; batches may overlap."""

    def committed(run_id, attempt):
        """Fires with the last committed sequence number, 0 when none."""

    def committed_late(run_id, attempt):
        """The same of what is kept apart."""

    def verify(run_id):
        """Recompute from all its batches what a run has; fires with Findings (iop.wholeness), fails with NoSuchRun."""

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
