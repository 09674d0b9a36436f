"""Schema 2: prompt, model, tokens, cost and software of a record; large texts as blobs; tasks; code vectors."""

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """Add columns and tables; what is there keeps its place and its values."""
    for name in ("model", "prompt", "extra"):
        op.add_column("records", sa.Column(name, sa.Text, nullable=False, server_default=""))
    for name in ("prompt_tokens", "completion_tokens"):
        op.add_column("records", sa.Column(name, sa.Integer))
    op.add_column("records", sa.Column("cost_usd", sa.Double))
    for name in ("software", "blobs"):
        op.add_column("records", sa.Column(name, sa.JSON, nullable=False, server_default="{}"))
    op.create_table(
        "tasks",
        sa.Column("task_id", sa.String(64), primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("level", sa.Integer, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("shapes", sa.JSON, nullable=False),
        sa.Column("extra", sa.JSON, nullable=False),
    )
    op.create_table(
        "code_vectors",
        sa.Column("code_hash", sa.String(64), primary_key=True),
        sa.Column("scheme", sa.String(32), primary_key=True),
        sa.Column("vector", sa.LargeBinary, nullable=False),
    )
