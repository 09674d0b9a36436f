"""The service's own tables in the archive's database: made where they are missing."""

from __future__ import annotations

import sqlalchemy as sa

from archive.store import Archive

_LOCK = 0x73657276  # "serv": processes that start at once on one PostgreSQL database take turns


def ensure_tables(archive: Archive, metadata: sa.MetaData) -> None:
    """Make the tables that are not there. Looks first: a look waits for no writer. Raises ArchiveError."""
    with archive.connection() as connection:
        if set(metadata.tables) <= set(sa.inspect(connection).get_table_names()):
            return
    with archive.connection(write=True) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        metadata.create_all(connection)
