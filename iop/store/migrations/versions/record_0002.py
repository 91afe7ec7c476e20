"""What an open run of a node is to go on under after a restart."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "record_0002"
down_revision = "record_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("target_config", "limits"):
        op.add_column("node_runs", sa.Column(name, sa.LargeBinary))
