"""The migrations of the schema, run from Python: upgrade, downgrade, and why a database cannot be used as it is."""

from __future__ import annotations

import contextlib
import importlib.resources
from collections.abc import Iterator
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, inspect, text

from deferred.errors import MetadataError
from deferred.metadata.database import VERSION_TABLE, Database
from deferred.metadata.models import REVISION, Base

UPGRADE_LOCK = 0x6465666572726564  # "deferred" in ASCII; any number that nobody else locks


def upgrade(url: str, revision: str = "head") -> None:
    """Bring a database to a newer revision, all or nothing."""
    with _opened(url) as database:
        database.make_folder()
        _upgrade(database, revision)


def downgrade(url: str, revision: str) -> None:
    """Bring a database back to an older revision (`base`: to nothing), all or nothing."""
    with _opened(url) as database, _locked(database) as connection, _readable_errors(database):
        command.downgrade(_configuration(connection), revision)


def current(url: str) -> str | None:
    """Returns the revision of a database; None when it has none of our tables."""
    with _opened(url) as database:
        if database.file is not None and not database.file.exists():
            return None
        return database.revision()


def head() -> str:
    """Returns the newest revision of the schema."""
    newest = ScriptDirectory.from_config(_configuration()).get_current_head()
    assert newest is not None, "the migrations folder is empty"
    return newest


def create_if_empty(database: Database) -> None:
    """Create the schema in an empty database; one that holds any table is left as it is."""
    with database.connection() as connection:
        empty = not inspect(connection).get_table_names()
    if empty:
        _upgrade(database, "head")


def unusable(database: Database) -> MetadataError:
    """Returns the error that says why this code cannot work with a database of another revision, and what to do."""
    revision = database.revision()
    if revision is None:
        return MetadataError(
            f"The metadata database {database} has no schema of deferred; create it with `deferred init` "
            "(an empty database) or `deferred db upgrade`."
        )
    if revision in {script.revision for script in ScriptDirectory.from_config(_configuration()).walk_revisions()}:
        return MetadataError(
            f"The metadata database {database} is at the older revision {revision}, and {REVISION} is needed; "
            "run `deferred db upgrade`."
        )
    return MetadataError(
        f"The metadata database {database} is at revision {revision}, which this version of deferred does not know "
        f"(it knows {REVISION}); upgrade the package deferred."
    )


def _upgrade(database: Database, revision: str) -> None:
    with _locked(database) as connection, _readable_errors(database):
        command.upgrade(_configuration(connection), revision)


def _configuration(connection: Connection | None = None) -> Config:
    configuration = Config()
    configuration.set_main_option("script_location", str(_folder()).replace("%", "%%"))
    configuration.set_main_option("path_separator", "os")
    configuration.attributes.update(connection=connection, version_table=VERSION_TABLE, metadata=Base.metadata)
    return configuration


def _folder() -> Path:
    """The migrations: installed as the package deferred.migrations, or beside the package in a plain checkout."""
    try:
        return Path(str(importlib.resources.files("deferred.migrations")))
    except ModuleNotFoundError:
        return Path(__file__).parents[2] / "migrations"


@contextlib.contextmanager
def _opened(url: str) -> Iterator[Database]:
    database = Database(url)
    try:
        yield database
    finally:
        database.close()


@contextlib.contextmanager
def _locked(database: Database) -> Iterator[Connection]:
    """One transaction that no other migration can enter; on SQLite any writing transaction is alone."""
    with database.connection() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": UPGRADE_LOCK})
        yield connection


@contextlib.contextmanager
def _readable_errors(database: Database) -> Iterator[None]:
    try:
        yield
    except CommandError as error:
        raise MetadataError(f"The metadata database {database} cannot be migrated: {error}.") from error
