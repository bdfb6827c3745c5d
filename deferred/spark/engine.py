"""Running SQL: sessions of operations, statements, and Delta commits that carry an operation's mark."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from deferred import failpoints
from deferred.errors import InvalidSQLError
from deferred.spark import driver, session
from deferred.spark.statements import Statement, brief, statement_text, translated
from deferred.spark.tasks import Tasks
from deferred.spark.temporaries import Temporaries
from deferred.sql.ddl import command
from deferred.sql.dialect import quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from deferred.algebra.types import Columns
    from deferred.spark.copy_on_write import Rewriting

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
TXN_APP = "spark.databricks.delta.write.txnAppId"
TXN_VERSION = "spark.databricks.delta.write.txnVersion"
MARKS = (USER_METADATA, TXN_APP, TXN_VERSION)
"""The settings by which Delta marks a commit."""

MATERIALIZE = "spark.databricks.delta.merge.materializeSource"

OWN_SETTINGS = {
    # A checkpoint keeps the constraints of its columns, and Spark 4.2 fails on them ("key not found") when one of the
    # columns is pruned and a UNION follows. Without them, long delta programs are also planned in half the time.
    "spark.sql.constraintPropagation.enabled": "false",
    # A commit with a mark makes Delta compute the state of the table's log, by default with 50 tasks: several seconds.
    "spark.databricks.delta.snapshotPartitions": "2",
    # What is written is read at the driver, too, by readers that do not know the calendar of before 1582.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
}
"""What every session of an operation has, whatever Spark it is a session of."""


@dataclass(frozen=True)
class Mark:
    """What each of our Delta commits carries: an application id, and a version that Delta commits at most once.

    `details` can be read back from Delta's log, which, not the metadata database, says what happened.
    """

    application: str
    version: int
    details: Mapping[str, Any]

    def text(self) -> str:
        return json.dumps({"deferred": {**self.details, "application": self.application, "version": self.version}})


def read_mark(user_metadata: str | None) -> dict[str, Any] | None:
    """Returns the mark in a commit's userMetadata, None if the commit is not ours."""
    if not user_metadata:
        return None
    try:
        found = json.loads(user_metadata)
    except ValueError:
        return None
    mark = found.get("deferred") if isinstance(found, dict) else None
    return mark if isinstance(mark, dict) else None


@dataclass
class _Scope:
    """The statements of one thread that share a session: the settings that give them their meaning."""

    settings: frozenset[tuple[str, str]] | None
    session: SparkSession | None = None


class Engine:
    """One Spark, started when it is first needed: the user's session, and sessions of our own for operations.

    An operation has a session for itself, so that its settings and marks reach no statement of the user or of another
    thread, and theirs do not reach it.
    """

    def __init__(
        self,
        spark: SparkSession | None = None,
        master: str | None = None,
        remote: str | None = None,
        conf: Mapping[str, str] | None = None,
        prepare: Callable[[SparkSession], None] | None = None,
        catalog: str | None = None,
        own_function: Callable[[str], str | None] = lambda name: None,
    ) -> None:
        session.check(master, remote)
        self._spark = spark
        self._prepare = prepare
        self.own_function = own_function
        """What a function is that the configuration names, by the name by which SQL calls it; None for all others."""
        self._prepared = False
        self._starting = threading.Lock()
        self._idle: dict[frozenset[tuple[str, str]] | None, list[SparkSession]] = {}
        self._thread = threading.local()
        self._tasks = Tasks()
        self.master, self.remote, self.conf, self.catalog = master, remote, dict(conf or {}), catalog

    @property
    def spark(self) -> SparkSession:
        """The user's session: for DataFrames that a user gives or gets."""
        with self._starting:
            if self._spark is None:
                self._spark = session.start(self.master, self.remote, self.conf, self.catalog)
            if self._prepare is not None and not self._prepared:
                self._prepare(self._spark)
                self._prepared = True
            return self._spark

    @property
    def started(self) -> bool:
        return self._spark is not None

    def release(self) -> None:
        """Release the user's session without stopping it: other code in this process may be using it."""
        with suppress(Exception):  # the server may have been stopped in the meantime
            for own in chain.from_iterable(self._idle.values()):
                session.close(own)
        self._idle.clear()
        self._spark = None

    def tasks(self) -> tuple[int, int] | None:
        """Returns how many of Spark's tasks are done and how many there are, None where nothing runs."""
        return self._tasks.now(self._spark)

    def settings(self) -> dict[str, str]:
        """Returns the settings of the user's session on which the meaning of SQL depends."""
        with translated():
            return session.meaning(self.spark)

    @contextmanager
    def meaning(self, settings: Mapping[str, str] | None) -> Iterator[None]:
        """Lets the statements of this thread mean what they mean under these settings, as long as the block runs.

        The block has one session, which is taken when its first statement runs. None means the settings of the
        user's session, which a view that an earlier version created has not kept.
        """
        outer = self._scope
        self._thread.scope = scope = _Scope(None if settings is None else frozenset(settings.items()))
        try:
            yield
        finally:
            self._thread.scope = outer
            if scope.session is not None:
                self._idle.setdefault(scope.settings, []).append(scope.session)

    @contextmanager
    def operation(self, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
        """A session for the statements of this thread, with some settings, for as long as the block runs.

        Nested blocks have the same session.
        """
        scope = self._scope
        if scope is None:
            with self.meaning(None), self.operation(settings) as own:
                yield own
            return
        if scope.session is None:
            scope.session = self._take(scope.settings)
        with session.settings(scope.session, settings or {}):
            yield scope.session

    def begin_anew(self) -> None:
        """Let the statements of this thread have a session that none had before, unless they have begun.

        A session goes on with the functions that it has once looked up, whatever others make of them meanwhile.
        """
        scope = self._scope
        if scope is None or scope.session is None:
            for own in self._idle.pop(None if scope is None else scope.settings, []):
                session.close(own)

    @property
    def _scope(self) -> _Scope | None:
        return getattr(self._thread, "scope", None)

    def _take(self, settings: frozenset[tuple[str, str]] | None) -> SparkSession:
        spark = self.spark
        with suppress(IndexError, KeyError):
            return self._idle[settings].pop()
        own = session.another(spark, without=MARKS)
        if settings is not None:
            with translated():
                session.give_meaning(own, dict(settings))
        for name, value in OWN_SETTINGS.items():
            own.conf.set(name, value)
        if self._prepare is not None:
            self._prepare(own)
        self._tasks.follow(own)
        return own

    # ---- statements

    def sql(
        self, statement: Statement, frames: Mapping[str, DataFrame] | None = None, own: str | None = None
    ) -> DataFrame:
        """A query in the user's session. Spark's errors become DeferredErrors.

        `frames` are DataFrames of that session which the query reads by name; nothing else in it may be called so.
        `own` is the text of a user from which the query was made: errors show their place in it.
        """
        with translated(own, statement_text(statement)):
            return _analyzed(self.spark, statement, frames)

    def check(self, statement: Statement) -> None:
        """Refuse a writing statement that Spark cannot plan, without running it."""
        with self.operation() as spark, translated():
            plan = "\n".join(row[0] for row in spark.sql(command("EXPLAIN", statement)).collect())
        failed = _UNPLANNED.match(plan)
        if failed:
            raise InvalidSQLError(f"Spark refuses the SQL: {brief(plan[failed.end() :])}")

    def rows(self, query: Statement) -> list[Any]:
        """Returns the rows of a query."""
        with self.operation() as spark, translated():
            return spark.sql(statement_text(query)).collect()

    def columns(self, query: Statement) -> list[tuple[str, str]]:
        """Returns the columns of a query, (name, type as DDL), without running it."""
        with self.operation() as spark, translated():
            return [(f.name, ddl(f.dataType)) for f in spark.sql(statement_text(query)).schema.fields]

    # ---- temporary results

    @contextmanager
    def temporaries(self, settings: Mapping[str, str] | None = None) -> Iterator[Temporaries]:
        """Temporary results of one operation, dropped when it ends; its session begins when one needs Spark."""
        with ExitStack() as stack:
            temporaries = Temporaries(lambda: stack.enter_context(self.operation(settings)))
            try:
                yield temporaries
            finally:
                temporaries.drop()

    # ---- commits

    @contextmanager
    def guarded(self, check: Callable[[], None]) -> Iterator[None]:
        """Call `check` before every write of this thread while the block runs; what it raises prevents the write."""
        before: tuple[Callable[[], None], ...] = getattr(self._thread, "checks", ())
        self._thread.checks = (*before, check)
        try:
            yield
        finally:
            self._thread.checks = before

    def check_guards(self) -> None:
        """Raises what prevents a write of this thread now."""
        for check in getattr(self._thread, "checks", ()):
            check()

    def write(self, statement: Statement) -> None:
        """Run a writing statement that is safe to repeat, without a mark."""
        with self.operation() as spark:
            self._durably(spark, statement)

    def commit(self, statement: Statement, mark: Mark, stable_source: bool = False) -> None:
        """Run a writing statement whose Delta commit carries the mark. A commit with that mark is made at most once.

        `stable_source` says that a MERGE's source consists of temporary results, so that Delta need not copy it.
        """
        settings = {USER_METADATA: mark.text(), TXN_APP: mark.application, TXN_VERSION: str(mark.version)}
        if stable_source:
            settings[MATERIALIZE] = "none"
        with self.operation(settings) as spark:
            self._durably(spark, statement)

    def create_table(
        self, path: str, columns: Columns, partitioned_by: Sequence[str], properties: Mapping[str, str]
    ) -> bool:
        """Create an empty Delta table without Spark. Returns False where Spark must do it: nothing was done."""
        self._announce(f"CREATE TABLE {_folder(path)}")
        return driver.create(path, columns, partitioned_by, properties)

    def append_rows(self, path: str, rows: pa.Table, mark: Mark) -> bool:
        """Append rows that are at the driver, without Spark. Returns False where Spark must do it: nothing was done."""
        self._announce(f"INSERT INTO {_folder(path)}")
        return driver.append(path, rows, mark.application, mark.version, mark.text())

    def rewrite_rows(self, path: str, rewriting: Rewriting, mark: Mark) -> bool:
        """Put the files of a rewriting in the place of others, without Spark; False as for `append_rows`."""
        self._announce(f"INSERT INTO {_folder(path)}")
        return rewriting.commit(mark.application, mark.version, mark.text())

    def replace(self, path: str, query: Statement, mark: Mark) -> None:
        """Give a Delta table other rows and other columns, in one commit with a mark; it stays the same table.

        SQL has no statement for this: CREATE OR REPLACE TABLE makes another table in its place.
        """
        settings = {USER_METADATA: mark.text(), TXN_APP: mark.application, TXN_VERSION: str(mark.version)}
        with self.operation(settings) as spark:
            self._announce(f"replacement of {_folder(path)}")
            with translated():
                rows = _analyzed(spark, query).write.format("delta").mode("overwrite")
                rows.option("overwriteSchema", "true").save(path)

    def _announce(self, effect: str) -> None:
        """What comes before every durable effect."""
        self.check_guards()
        failpoints.reached(f"Delta: {effect}")

    def _durably(self, spark: SparkSession, statement: Statement) -> None:
        """Run a statement that makes a Delta commit: the only way to one."""
        self._announce(_shown(statement_text(statement)))
        with translated():
            _analyzed(spark, statement)


_WRITES = re.compile(
    r"\s*(\w+(?: OR REPLACE)?(?: INTO| OVERWRITE| FROM| TABLE)*)[^`]*`(?:[^`]*/)?([^`]*?)(?:-[0-9a-f]{8})?`"
)


def _folder(path: str) -> str:
    """The name of a table's folder, without the number that makes it unique."""
    return re.sub(r"-[0-9a-f]{8}$", "", path.rstrip("/").rpartition("/")[2])


def _shown(statement: str) -> str:
    """A writing statement in a few words.

    >>> _shown("CREATE TABLE delta.`/w/views/v-0123abcd/mv` (`a` int) USING delta")
    'CREATE TABLE mv'
    """
    found = _WRITES.match(statement)
    return " ".join(found.groups()) if found else statement[:40]


def _analyzed(spark: SparkSession, statement: Statement, frames: Mapping[str, DataFrame] | None = None) -> DataFrame:
    """Runs a command, or analyzes a query: a Connect session would do that only when the rows are read."""
    written = statement_text(statement)
    named: dict[str, Any] = dict(frames or {})
    if named:  # pyspark takes the text for a format string
        written = written.replace("{", "{{").replace("}", "}}")
        written = re.sub("|".join(map(re.escape, named)), lambda name: f"{{{name[0]}}}", written)
    frame = spark.sql(written, None, **named)
    _ = frame.schema
    return frame


def ddl(type_: DataType) -> str:
    """A type as DDL, with the names of its fields quoted, so that Spark can read it back."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(type_, StructType):
        fields = ", ".join(f"{quoted(f.name)}: {ddl(f.dataType)}" for f in type_.fields)
        return f"struct<{fields}>"
    if isinstance(type_, ArrayType):
        return f"array<{ddl(type_.elementType)}>"
    if isinstance(type_, MapType):
        return f"map<{ddl(type_.keyType)}, {ddl(type_.valueType)}>"
    return type_.simpleString()


_UNPLANNED = re.compile(r"Error occurred during query planning:\s*")
