"""The Alembic history of the metadata database; installed as deferred.migrations, run by deferred.metadata.migrate."""
