"""The tables of the history and of a node's record, as queries use them. They are made by migrations only.

Names are stated once more in the migrations, on purpose: a migration never changes, this page does.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, Table, Text

history = MetaData()
record = MetaData()

_GROWING = BigInteger().with_variant(Integer, "sqlite")    # INTEGER PRIMARY KEY is SQLite's own row number


def _text(name: str) -> Column:
    return Column(name, Text, nullable=False, server_default="")


def _number(name: str) -> Column:
    return Column(name, BigInteger, nullable=False, server_default="0")


def _bytes(name: str) -> Column:
    return Column(name, LargeBinary, nullable=False)


# The columns are the fields of iop.records.RunRecord; nothing else knows both.
runs = Table(
    "runs", history,
    Column("run_id", Text, primary_key=True),
    _text("state"), _text("adapter"), _text("target"), _text("node_id"), _number("attempt"),
    _number("created_us"), _number("placed_us"), _number("started_us"), _number("ended_us"),
    _text("session_id"), _number("priority"), _text("face"), _text("principal"), _text("request_id"),
    Column("idempotency_key", Text),
    _bytes("request"), _bytes("outcome"), _text("outcome_code"), _text("output_text"), _text("prompt_text"),
    _number("prompt_tokens"), _number("completion_tokens"), _number("cancel_us"), _text("pin"),
    _number("incomplete"), _text("alias"), _text("placement"), _number("cached_tokens"), _number("first_output_us"),
    _number("cost_micros"), _number("forgotten"),
    # Newest first of one kind: each search walks one of these backwards.
    Index("runs_by_state", "state", "run_id"),
    Index("runs_by_target", "target", "run_id"),
    Index("runs_by_adapter", "adapter", "run_id"),
    Index("runs_by_node", "node_id", "run_id"),
    Index("runs_by_session", "session_id", "run_id"),
    Index("runs_by_principal", "principal", "run_id"),
    # Everything that a usage report reads: the rows themselves lie behind requests of up to megabytes.
    Index("runs_by_usage", "created_us", "principal", "adapter", "target", "node_id", "prompt_tokens", "completion_tokens",
          "cached_tokens", "cost_micros"),
    Index("runs_by_idempotency_key", "principal", "idempotency_key", unique=True),
)


def _batches(name: str) -> Table:
    return Table(
        name, history,
        Column("run_id", Text, primary_key=True),
        Column("attempt", BigInteger, primary_key=True, autoincrement=False),
        Column("first_seq", BigInteger, primary_key=True, autoincrement=False),
        Column("last_seq", BigInteger, nullable=False),
        _bytes("packed"),
    )


batches = _batches("batches")
late = _batches("late")

events = Table(
    "events", history,
    Column("event_id", _GROWING, primary_key=True, autoincrement=False),
    _number("at_us"), _text("kind"), _text("node_id"), _text("run_id"), _bytes("packed"),
)

audit = Table(
    "audit", history,
    Column("audit_id", _GROWING, primary_key=True, autoincrement=False),
    _number("at_us"), _text("face"), _text("principal"), _text("request_id"), _text("action"), _text("detail"),
)

sessions = Table(
    "sessions", history,
    Column("session_id", Text, primary_key=True),
    _text("node_id"), _text("adapter"), _text("target"), _number("created_us"), _number("used_us"),
    _number("closed_us"), _number("runs"),
)

node_runs = Table(
    "node_runs", record,
    Column("run_id", Text, primary_key=True),
    Column("attempt", BigInteger, primary_key=True, autoincrement=False),
    _text("adapter"), _text("target"), _number("accepted_us"), _number("ended_us"), _text("kind"),
    _bytes("request"), _bytes("outcome"), _number("pid"), _number("start_ticks"), _text("boot_id"),
    Column("target_config", LargeBinary), Column("limits", LargeBinary),
    Index("node_runs_by_end", "ended_us", "accepted_us"),
    Index("node_runs_by_acceptance", "accepted_us"),
)


def names(table: Table) -> tuple[str, ...]:
    """The names of its columns, in order."""
    return tuple(column.name for column in table.columns)
