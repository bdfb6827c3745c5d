"""The connection to the metadata database: URLs, engines, short transactions, and errors that never show a password."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    Table,
    column,
    create_engine,
    event,
    func,
    inspect,
    make_url,
    select,
    table,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, StatementError
from sqlalchemy.orm import Session

from deferred import failpoints
from deferred.errors import MetadataError

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

# Not Alembic's default name: Airflow keeps its own history under that, and may live in the same PostgreSQL database.
VERSION_TABLE = "deferred_revision"
BUSY_TIMEOUT_MILLISECONDS = 30_000
CONNECT_TIMEOUT_SECONDS = 10
SECRET_PARAMETERS = frozenset({"password", "sslpassword", "passfile"})


class Database:
    """One metadata database. Threads may share it: every call takes its own connection for one short transaction."""

    def __init__(self, url: str) -> None:
        self.url = parse_url(url)
        self._engine = _create_engine(self.url)
        # Writers on SQLite take the write lock at once: a lock taken after a read fails when another wrote in between.
        self._writing_engine = self._engine.execution_options(sqlite_begin="BEGIN IMMEDIATE")

    def __str__(self) -> str:
        return shown_url(self.url)

    @property
    def file(self) -> Path | None:
        """The file of a SQLite database."""
        return Path(self.url.database) if self.url.get_backend_name() == "sqlite" and self.url.database else None

    def make_folder(self) -> None:
        """Create the folder of a SQLite file, so that a new database can be created in it."""
        if self.file is not None:
            failpoints.reached("folder of the metadata database")
            try:
                self.file.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise MetadataError(f"The folder of the metadata database {self} cannot be created: {error}.") from None

    @contextlib.contextmanager
    def read(self) -> Iterator[Session]:
        """A session for reading only."""
        with self._translated(), Session(self._engine) as session:
            yield session

    @contextlib.contextmanager
    def write(self) -> Iterator[Session]:
        """A session whose changes are committed together at the end, or not at all."""
        with self._translated(), Session(self._writing_engine) as session, session.begin():
            yield session

    @contextlib.contextmanager
    def connection(self) -> Iterator[Connection]:
        """A plain connection in one writing transaction, for migrations."""
        with self._translated(), self._writing_engine.begin() as connection:
            yield connection

    def revision(self) -> str | None:
        """Returns the revision of the schema; None when there is no schema of ours."""
        with self.read() as session:
            if not inspect(session.connection()).has_table(VERSION_TABLE):
                return None
            revision: str | None = session.scalar(select(column("version_num")).select_from(table(VERSION_TABLE)))
            return revision

    def insert(self, table: type[Any]) -> postgresql.Insert | sqlite.Insert:
        """Returns an INSERT that takes ON CONFLICT: both databases have it, each in its own dialect."""
        target: Table = table.__table__
        if self.url.get_backend_name() == "postgresql":
            from sqlalchemy.dialects.postgresql import insert as insert_into_postgresql

            return insert_into_postgresql(target)
        from sqlalchemy.dialects.sqlite import insert as insert_into_sqlite

        return insert_into_sqlite(target)

    def number_after(self, session: Session, table: type[Any]) -> None:
        """Number the rows that come after those that were given their ids; SQLite does so by itself."""
        if self.url.get_backend_name() == "postgresql":
            name = table.__tablename__
            last = select(func.max(table.__table__.columns["id"])).scalar_subquery()
            session.execute(select(func.setval(func.pg_get_serial_sequence(name, "id"), last)))

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            # The original error is not chained: a driver may repeat the connection string in it.
            raise MetadataError(self._explain(str(error.orig).strip())) from None
        except StatementError as error:
            raise (error.orig or error) from None  # a value that one of our column types refused

    def _explain(self, reason: str) -> str:
        for secret in _secrets(self.url):
            reason = reason.replace(secret, "***")
        remedy = "Check that it is running, and the address, user and password in `metadata_url`."
        if self.file is not None:
            remedy = "Check the path and its permissions."
            if "locked" in reason:
                remedy = "Another process keeps it locked; try again when that process has ended."
        return f"The metadata database {self} cannot be used: {reason.rstrip('.')}. {remedy}"


def parse_url(text: str) -> URL:
    """Returns the URL with its driver named; a MetadataError says what a usable one looks like.

    >>> str(parse_url("postgresql://people@host/deferred"))
    'postgresql+psycopg://people@host/deferred'
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise MetadataError(
            "The metadata URL cannot be read; write sqlite:///path/to/metadata.db or "
            "postgresql://user:password@host/name."
        ) from None
    if "@" in (url.host or ""):
        raise MetadataError("The metadata URL has more than one @; write an @ inside the password as %40.")
    backend = url.get_backend_name()
    if backend in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        raise MetadataError(f"The metadata database must be SQLite or PostgreSQL, not {backend}.")
    if url.database in (None, "", ":memory:"):
        raise MetadataError("Processes cannot share a metadata database in memory; name a file: sqlite:///metadata.db.")
    return url


def shown_url(url: URL) -> str:
    """Returns the URL as it may be printed.

    >>> shown_url(make_url("postgresql://me:secret@host/db?sslpassword=other"))
    'postgresql://me:***@host/db?sslpassword=***'
    """
    hidden = {name: "***" for name in url.query if name in SECRET_PARAMETERS}
    return url.update_query_dict(hidden).render_as_string(hide_password=True).replace("%2A%2A%2A", "***")


def _secrets(url: URL) -> list[str]:
    values = [str(url.password or ""), *(str(url.query[name]) for name in SECRET_PARAMETERS if name in url.query)]
    return [form for value in values if value for form in (value, quote(value, safe=""), quote_plus(value))]


def _create_engine(url: URL) -> Engine:
    engine = _create_plain_engine(url)
    if failpoints.active():
        event.listen(engine, "before_cursor_execute", _note_write)
        event.listen(engine, "rollback", _written)
        event.listen(engine, "commit", lambda connection: failpoints.reached(f"metadata: {_written(connection)}"))
    return engine


_WRITE = re.compile(r"\s*(INSERT INTO|UPDATE|DELETE FROM|(?:CREATE|ALTER|DROP) TABLE)\s+(\w+)", re.IGNORECASE)


def _note_write(connection: Connection, cursor: object, statement: str, *_: object) -> None:
    if found := _WRITE.match(statement):
        connection.info.setdefault("written", []).append(" ".join(found.groups()))


def _written(connection: Connection) -> str:
    """What the connection has written since the last commit, each kind of statement once."""
    return ", ".join(dict.fromkeys(connection.info.pop("written", ()))) or "nothing"


def _create_plain_engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    arguments = {} if "connect_timeout" in url.query else {"connect_timeout": CONNECT_TIMEOUT_SECONDS}
    try:
        return create_engine(url, connect_args=arguments, pool_pre_ping=True)
    except ModuleNotFoundError:
        raise MetadataError("PostgreSQL needs its driver: pip install 'deferred[postgres]'.") from None


def _prepare_sqlite(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # Python would begin transactions at moments of its own choice
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MILLISECONDS}")
    connection.execute("PRAGMA foreign_keys = ON")
    # Two processes that create the file at once cannot both switch it; the mode stays in the file, so one is enough.
    with contextlib.suppress(sqlite3.OperationalError):
        connection.execute("PRAGMA journal_mode = WAL")


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("sqlite_begin", "BEGIN"))
