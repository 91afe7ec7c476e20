"""What of a run an edge that starts again must know: that its end was asked for, and which node it must go to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "history_0002"
down_revision = "history_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("cancel_us", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("runs", sa.Column("pin", sa.Text, nullable=False, server_default=""))
    op.execute("UPDATE runs SET pin = node_id WHERE state = 'queued'")     # where it stood until now
