"""A node's own record of its runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "record_0001"
down_revision = None
branch_labels = ("record",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "node_runs",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("attempt", sa.BigInteger, primary_key=True, autoincrement=False),
        _text("adapter"), _text("target"), _number("accepted_us"), _number("ended_us"), _text("kind"),
        sa.Column("request", sa.LargeBinary, nullable=False), sa.Column("outcome", sa.LargeBinary, nullable=False),
        _number("pid"), _number("start_ticks"), _text("boot_id"))
    op.create_index("node_runs_by_end", "node_runs", ["ended_us", "accepted_us"])
    op.create_index("node_runs_by_acceptance", "node_runs", ["accepted_us"])


def _text(name: str) -> sa.Column:
    return sa.Column(name, sa.Text, nullable=False, server_default="")


def _number(name: str) -> sa.Column:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")
