"""Of which runs events are lost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "history_0003"
down_revision = "history_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("incomplete", sa.BigInteger, nullable=False, server_default="0"))
