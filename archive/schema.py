"""The archive's tables, and how a database comes to have them.

A new database gets the tables below at once. An older one is brought up to date by the migrations in
archive/migrations, in one transaction: it has the old schema or the new one, whatever dies. A newer one is refused.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from archive.errors import ArchiveError

SCHEMA_VERSION = 2
"""Raised with every change of the tables, together with a migration."""
_ADVISORY_LOCK = 0x77617270  # "warp": processes that open one PostgreSQL archive at once take turns

metadata = sa.MetaData()
meta = sa.Table(
    "warpsmith_meta",
    metadata,
    sa.Column("key", sa.String(32), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
# BIGINT for PostgreSQL; SQLite counts up by itself only in a column declared INTEGER.
_POSITION = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
records = sa.Table(
    "records",
    metadata,
    sa.Column("position", _POSITION, primary_key=True, autoincrement=True),  # order of arrival
    sa.Column("record_id", sa.String(64), nullable=False, unique=True),
    sa.Column("run_id", sa.Text, nullable=False, index=True),
    sa.Column("task_name", sa.Text, nullable=False, index=True),
    sa.Column("task_id", sa.String(64), nullable=False),
    sa.Column("source", sa.Text, nullable=False, index=True),
    sa.Column("operator", sa.Text, nullable=False),
    sa.Column("code", sa.Text, nullable=False),
    sa.Column("analysis", sa.Text, nullable=False),
    sa.Column("completion", sa.Text, nullable=False),
    sa.Column("parents", sa.JSON, nullable=False),
    sa.Column("group_id", sa.Text),
    sa.Column("step", sa.Integer, index=True),
    sa.Column("policy_version", sa.Integer),
    # Copies of three of the verdict's fields, for queries; the verdict itself is what is read back.
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("speedup", sa.Double),
    sa.Column("speedup_low", sa.Double),
    sa.Column("verdict", sa.JSON, nullable=False),
    sa.Column("created_at", sa.String(40), nullable=False),  # ISO 8601 with its offset, which SQLite's dates lose
    sa.Column("model", sa.Text, nullable=False, server_default=""),
    sa.Column("prompt", sa.Text, nullable=False, server_default=""),
    sa.Column("extra", sa.Text, nullable=False, server_default=""),  # a JSON object; empty for none
    sa.Column("prompt_tokens", sa.Integer),
    sa.Column("completion_tokens", sa.Integer),
    sa.Column("cost_usd", sa.Double),
    sa.Column("software", sa.JSON, nullable=False, server_default="{}"),
    sa.Column("blobs", sa.JSON, nullable=False, server_default="{}"),  # column -> SHA-256 of a text kept as a blob
    sa.Index("records_by_task", "task_id", "status", "speedup_low"),
)
tasks = sa.Table(
    "tasks",
    metadata,
    sa.Column("task_id", sa.String(64), primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("level", sa.Integer, nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("shapes", sa.JSON, nullable=False),
    sa.Column("extra", sa.JSON, nullable=False),
)
code_vectors = sa.Table(  # a cache: archive/similarity.py makes it anew where it is missing
    "code_vectors",
    metadata,
    sa.Column("code_hash", sa.String(64), primary_key=True),
    sa.Column("scheme", sa.String(32), primary_key=True),
    sa.Column("vector", sa.LargeBinary, nullable=False),
)


def version_of(connection: sa.Connection) -> int | None:
    """The database's schema version; None where it holds no archive."""
    if not sa.inspect(connection).has_table(meta.name):
        return None
    found = connection.execute(sa.select(meta.c.value).where(meta.c.key == "schema")).scalar()
    return int(found) if found is not None and found.isdecimal() else 0


def is_current(connection: sa.Connection) -> bool:
    """True when nothing needs to be made or migrated."""
    return version_of(connection) == SCHEMA_VERSION


def ensure(connection: sa.Connection, where: str) -> None:
    """Make the tables in an empty database and migrate an older archive, within the caller's transaction.

    Raises ArchiveError for an archive of a newer version, and for a database of another program.
    """
    sqlite = connection.dialect.name == "sqlite"
    if not sqlite:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
    version = version_of(connection)
    if version is None:
        names = set(sa.inspect(connection).get_table_names())
        if sqlite and names:
            raise ArchiveError(f"{where}: a database of another program; give the path of an archive")
        if foreign := sorted(names & set(metadata.tables)):
            raise ArchiveError(f"{where}: has a foreign table '{foreign[0]}'; give a database of its own")
        metadata.create_all(connection)
        connection.execute(sa.insert(meta).values(key="schema", value=str(SCHEMA_VERSION)))
    elif version > SCHEMA_VERSION or version < 1:
        raise ArchiveError(
            f"{where}: an archive of schema version {version}, this warpsmith reads {SCHEMA_VERSION} and older; use "
            "the warpsmith that wrote it (upgrade this one), have it `archive export` the records, or give another path"
        )
    elif version < SCHEMA_VERSION:
        migrate(connection, version)


def migrate(connection: sa.Connection, version: int | None, target: int = SCHEMA_VERSION) -> None:
    """Run the migrations after ``version`` (None: all of them) up to ``target``, within the caller's transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    if version is not None:
        command.stamp(config, str(version))
    command.upgrade(config, str(target))
    connection.execute(sa.delete(meta).where(meta.c.key == "schema"))
    connection.execute(sa.insert(meta).values(key="schema", value=str(target)))
