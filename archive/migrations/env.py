"""What Alembic runs: the migrations, on the connection and in the transaction that the archive hands over."""

from alembic import context

from archive.schema import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, version_table="warpsmith_migrations")
with context.begin_transaction():
    context.run_migrations()
