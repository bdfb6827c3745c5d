"""Alembic's entry. It runs only on a connection that deferred.metadata.migrate has opened, inside its transaction."""

from alembic import context

attributes = context.config.attributes
context.configure(
    connection=attributes["connection"],
    target_metadata=attributes["metadata"],
    version_table=attributes["version_table"],
    compare_type=True,
    render_as_batch=True,  # SQLite alters a table by copying it
    transactional_ddl=True,  # on SQLite too: the transaction is ours, not the driver's
)
with context.begin_transaction():
    context.run_migrations()
