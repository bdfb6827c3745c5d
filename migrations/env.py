"""Alembic's entry. It runs only on a connection that deferred.metadata.migrate has opened, inside its transaction."""

import logging

from alembic import context

# What a step did is said by the command that asked for it; Alembic's own lines would mix with that command's output.
logging.getLogger("alembic").setLevel(logging.WARNING)

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
