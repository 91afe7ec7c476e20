"""Where runs were placed and why, the name they were asked by, and what they used."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "history_0004"
down_revision = "history_0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("alias", "placement"):
        op.add_column("runs", sa.Column(name, sa.Text, nullable=False, server_default=""))
    for name in ("cached_tokens", "first_output_us", "cost_micros", "forgotten"):
        op.add_column("runs", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    op.drop_index("runs_by_creation", "runs")
    op.create_index("runs_by_usage", "runs", ["created_us", "principal", "adapter", "target", "node_id", "prompt_tokens",
                                              "completion_tokens", "cached_tokens", "cost_micros"])
