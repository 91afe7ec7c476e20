"""The history of an edge: runs, their batches, lifecycle events, the audit trail, sessions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "history_0001"
down_revision = None
branch_labels = ("history",)
depends_on = None

_APPEND_ONLY = ("batches", "late", "audit")
_GROWING = sa.BigInteger().with_variant(sa.Integer, "sqlite")    # INTEGER PRIMARY KEY is SQLite's own row number


def upgrade() -> None:
    _runs()
    for name in ("batches", "late"):
        _batches(name)
    op.create_table(
        "events",
        sa.Column("event_id", _GROWING, primary_key=True, autoincrement=False),
        _number("at_us"), _text("kind"), _text("node_id"), _text("run_id"), _bytes("packed"))
    op.create_table(
        "audit",
        sa.Column("audit_id", _GROWING, primary_key=True, autoincrement=False),
        _number("at_us"), _text("face"), _text("principal"), _text("request_id"), _text("action"), _text("detail"))
    op.create_table(
        "sessions",
        sa.Column("session_id", sa.Text, primary_key=True),
        _text("node_id"), _text("adapter"), _text("target"), _number("created_us"), _number("used_us"),
        _number("closed_us"), _number("runs"))
    if op.get_bind().dialect.name == "postgresql":
        _protect_in_postgresql()
    else:
        _protect_in_sqlite()


def _text(name: str) -> sa.Column:
    return sa.Column(name, sa.Text, nullable=False, server_default="")


def _number(name: str) -> sa.Column:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")


def _bytes(name: str) -> sa.Column:
    return sa.Column(name, sa.LargeBinary, nullable=False)


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("run_id", sa.Text, primary_key=True),
        _text("state"), _text("adapter"), _text("target"), _text("node_id"), _number("attempt"),
        _number("created_us"), _number("placed_us"), _number("started_us"), _number("ended_us"),
        _text("session_id"), _number("priority"), _text("face"), _text("principal"), _text("request_id"),
        sa.Column("idempotency_key", sa.Text),
        _bytes("request"), _bytes("outcome"), _text("outcome_code"), _text("output_text"), _text("prompt_text"),
        _number("prompt_tokens"), _number("completion_tokens"))
    for name, columns in (
        ("state", ["state", "run_id"]), ("target", ["target", "run_id"]), ("adapter", ["adapter", "run_id"]),
        ("node", ["node_id", "run_id"]), ("session", ["session_id", "run_id"]), ("principal", ["principal", "run_id"]),
        ("creation", ["created_us"]),
    ):
        op.create_index(f"runs_by_{name}", "runs", columns)
    op.create_index("runs_by_idempotency_key", "runs", ["principal", "idempotency_key"], unique=True)


def _batches(name: str) -> None:
    op.create_table(
        name,
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("attempt", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("first_seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        _bytes("packed"))


def _protect_in_sqlite() -> None:
    for name in _APPEND_ONLY:
        for action in ("UPDATE", "DELETE"):
            op.execute(f"CREATE TRIGGER {name}_no_{action.lower()} BEFORE {action} ON {name} "
                       f"BEGIN SELECT RAISE(ABORT, '{name} is append-only'); END")


def _protect_in_postgresql() -> None:
    op.execute("CREATE FUNCTION iop_append_only() RETURNS trigger LANGUAGE plpgsql AS "
               "$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$")
    for name in _APPEND_ONLY:
        op.execute(f"CREATE TRIGGER {name}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {name} "
                   "FOR EACH STATEMENT EXECUTE FUNCTION iop_append_only()")
    for name in ("batches", "late"):
        # Packed batches go out of line as they are: trying to compress them costs more than the history itself.
        op.execute(f"ALTER TABLE {name} ALTER COLUMN packed SET STORAGE EXTERNAL")
