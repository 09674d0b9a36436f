"""Schema 1, that of warpsmith 0.1: one table of records."""

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "warpsmith_meta",
        sa.Column("key", sa.String(32), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    position = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "records",
        sa.Column("position", position, primary_key=True, autoincrement=True),
        sa.Column("record_id", sa.String(64), nullable=False, unique=True),
        *(sa.Column(name, sa.Text, nullable=False, index=True) for name in ("run_id", "task_name")),
        sa.Column("task_id", sa.String(64), nullable=False),
        sa.Column("source", sa.Text, nullable=False, index=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("operator", "code", "analysis", "completion")),
        sa.Column("parents", sa.JSON, nullable=False),
        sa.Column("group_id", sa.Text),
        sa.Column("step", sa.Integer, index=True),
        sa.Column("policy_version", sa.Integer),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("speedup", sa.Double),
        sa.Column("speedup_low", sa.Double),
        sa.Column("verdict", sa.JSON, nullable=False),
        sa.Column("created_at", sa.String(40), nullable=False),
        sa.Index("records_by_task", "task_id", "status", "speedup_low"),
    )
