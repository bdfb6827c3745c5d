"""Running SQL: statements, temporary results, Delta commits that carry an operation's mark."""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deferred.errors import InvalidInputError, InvalidSQLError, SparkFailure
from deferred.spark import session
from deferred.sql.dialect import literal, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
TXN_APP = "spark.databricks.delta.write.txnAppId"
TXN_VERSION = "spark.databricks.delta.write.txnVersion"
MATERIALIZE = "spark.databricks.delta.merge.materializeSource"

BROADCAST_ROWS = 100_000
"""Up to this many changed rows are sent to the data instead of shuffling the data to them."""

CONSTRAINTS = "spark.sql.constraintPropagation.enabled"

_operations: dict[int, tuple[str | None, int]] = {}
"""Sessions with operations at work: what CONSTRAINTS was before, and how many of them there are."""
_operations_lock = threading.Lock()

_commits = threading.RLock()
"""Delta takes a commit's mark from the session's settings; two threads of one session must not mix theirs."""


@dataclass(frozen=True)
class Mark:
    """What a Delta commit of ours carries: whose it is, and a number that Delta commits at most once.

    `details` is found again in the table's own history: Delta's log, not the metadata database, says what happened.
    """

    application: str
    version: int
    details: Mapping[str, Any]

    def text(self) -> str:
        return json.dumps({"deferred": {**self.details, "application": self.application, "version": self.version}})


def read_mark(user_metadata: str | None) -> dict[str, Any] | None:
    """The mark in a commit's userMetadata, None where the commit is somebody else's."""
    if not user_metadata:
        return None
    try:
        found = json.loads(user_metadata)
    except ValueError:
        return None
    mark = found.get("deferred") if isinstance(found, dict) else None
    return mark if isinstance(mark, dict) else None


class Engine:
    """One Spark session, started when it is first needed."""

    def __init__(self, spark: SparkSession | None = None, master: str | None = None, remote: str | None = None,
                 conf: Mapping[str, str] | None = None, prepare: Callable[[SparkSession], None] | None = None) -> None:
        session.check(master, remote)
        self._spark = spark
        self._prepare = prepare
        self._starting = threading.Lock()
        self.master, self.remote, self.conf = master, remote, dict(conf or {})

    @property
    def spark(self) -> SparkSession:
        with self._starting:
            if self._spark is None:
                self._spark = session.start(self.master, self.remote, self.conf)
            if self._prepare is not None:
                prepare, self._prepare = self._prepare, None
                prepare(self._spark)
            return self._spark

    @property
    def started(self) -> bool:
        return self._spark is not None

    def release(self) -> None:
        """Let go of the session. It is not stopped: a process has one, and others in it may be using it."""
        self._spark = None

    # ---- statements

    def sql(self, text: str) -> DataFrame:
        """Run a statement, or analyze a query; what Spark refuses becomes an error for users."""
        with translated():
            frame = self.spark.sql(text)
            _ = frame.schema  # a Connect session would analyze only when the rows are asked for
            return frame

    def check(self, statement: str) -> None:
        """Refuse a writing statement that Spark cannot plan, without running it."""
        with translated():
            plan = "\n".join(row[0] for row in self.spark.sql(f"EXPLAIN {statement}").collect())
        failed = _UNPLANNED.match(plan)
        if failed:
            raise InvalidSQLError(f"Spark refuses the SQL: {_brief(plan[failed.end():])}")

    def rows(self, text: str) -> list[Any]:
        with translated():
            return self.spark.sql(text).collect()

    def columns(self, query: str) -> list[tuple[str, str]]:
        """The columns of a query: (name, type as DDL), by analysis alone."""
        with translated():
            return [(f.name, ddl(f.dataType)) for f in self.spark.sql(query).schema.fields]

    def types(self, query: str) -> list[str]:
        return [type_ for _, type_ in self.columns(query)]

    # ---- temporary results

    @contextmanager
    def temporaries(self) -> Iterator[Temporaries]:
        """Temporary results of one operation, gone when it ends."""
        temporaries = Temporaries(self)
        with _without_constraints(self.spark):
            try:
                yield temporaries
            finally:
                temporaries.drop()

    # ---- commits

    def write(self, statement: str) -> None:
        """Run a writing statement that is safe to repeat and needs no mark; it must not take another's."""
        with _commits:
            self.sql(statement)

    def commit(self, statement: str, mark: Mark, kept: bool = False) -> None:
        """Run a writing statement whose Delta commit carries the mark; one that was made before is not made again.

        `kept` says that a MERGE's source consists of kept results, so that Delta need not copy it.
        """
        self.committing(mark, lambda: self.sql(statement), {MATERIALIZE: "none"} if kept else {})

    def committing(self, mark: Mark, write: Callable[[], object], more: Mapping[str, str] | None = None) -> None:
        """Run a write whose Delta commit carries the mark, under some more settings."""
        conf = self.spark.conf
        settings = {USER_METADATA: mark.text(), TXN_APP: mark.application, TXN_VERSION: str(mark.version),
                    **(more or {})}
        with _commits, translated():
            for name, value in settings.items():
                conf.set(name, value)
            try:
                write()
            finally:
                for name in settings:
                    conf.unset(name)


@contextmanager
def _without_constraints(spark: SparkSession) -> Iterator[None]:
    """Spark plans without inferring conditions from conditions, for as long as an operation of the session lasts.

    A checkpoint remembers the conditions that held for its columns, and Spark 4.2 trips over them where it has left
    out one of the columns and a UNION follows ("key not found"). Long delta programs are also planned in half the time.
    """
    with _operations_lock:
        before, count = _operations.get(id(spark), (None, 0))
        if not count:
            before = spark.conf.get(CONSTRAINTS)
            spark.conf.set(CONSTRAINTS, "false")
        _operations[id(spark)] = (before, count + 1)
    try:
        yield
    finally:
        with _operations_lock:
            before, count = _operations.pop(id(spark))
            if count > 1:
                _operations[id(spark)] = (before, count - 1)
            else:
                # A session that is gone has nothing left to set.
                with suppress(Exception):
                    spark.conf.set(CONSTRAINTS, before or "true")


class Temporaries:
    """Results that later statements of one operation read, computed once and kept by Spark.

    They are checkpoints, not caches: a cached result carries the plan it came from into every plan that reads it, and
    steps that read one another would double Spark's planning with each. What is empty is known to be so, and then the
    optimizer drops whatever is joined with it; what is small is sent to the data.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._prefix = f"deferred_{uuid.uuid4().hex[:12]}"
        self._rows: dict[str, int] = {}

    def keep(self, step: str, query: str) -> str:
        """Compute a query now; answers the name to read it by."""
        with translated():
            return self.keep_frame(step, self._engine.spark.sql(query))

    def keep_frame(self, step: str, frame: DataFrame) -> str:
        """The same for a DataFrame."""
        name = f"{self._prefix}_{step}"
        with translated():
            frame = frame.localCheckpoint(True)
            rows = frame.count()
            if rows <= BROADCAST_ROWS:
                frame = frame.coalesce(1).hint("broadcast") if rows else frame.limit(0)
            frame.createOrReplaceTempView(name)
        self._rows[quoted(name)] = rows
        return quoted(name)

    def rows(self, name: str) -> int:
        """How many rows a kept result has."""
        return self._rows[name]

    def drop(self) -> None:
        for name in self._rows:
            # The rows go when nothing refers to them; a session that is gone has nothing left to drop.
            try:
                self._engine.spark.sql(f"DROP VIEW IF EXISTS {name}")
            except Exception:
                return
        self._rows.clear()


def ddl(type_: DataType) -> str:
    """A type as DDL that Spark reads back, whatever its fields are called."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(type_, StructType):
        fields = ", ".join(f"{quoted(f.name)}: {ddl(f.dataType)}" for f in type_.fields)
        return f"struct<{fields}>"
    if isinstance(type_, ArrayType):
        return f"array<{ddl(type_.elementType)}>"
    if isinstance(type_, MapType):
        return f"map<{ddl(type_.keyType)}, {ddl(type_.valueType)}>"
    return type_.simpleString()


def table(path: str, version: int | None = None) -> str:
    """A Delta table by path, at a version."""
    pinned = f" VERSION AS OF {int(version)}" if version is not None else ""
    return f"delta.{quoted(path)}{pinned}"


def changes(path: str, first: int, last: int, columns: Sequence[str], count: str) -> str:
    """The change feed from version `first` to `last` as signed rows, not yet netted."""
    listed = ", ".join(quoted(c) for c in columns)
    sign = "CASE WHEN _change_type IN ('insert', 'update_postimage') THEN 1L ELSE -1L END"
    return (f"SELECT {listed}, {sign} AS {quoted(count)} "
            f"FROM table_changes_by_path({literal(path)}, {int(first)}, {int(last)})")


_UNPLANNED = re.compile(r"Error occurred during query planning:\s*")
_CONDITION = re.compile(r"^\[([A-Z0-9_.]+)\]\s*(.*)$", re.DOTALL)


@contextmanager
def translated() -> Iterator[None]:
    """Spark's errors as ours: its own first sentence, without stack or plan."""
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    try:
        yield
    except ParseException as error:
        raise InvalidSQLError(f"Spark does not parse the SQL: {_brief(str(error))}") from error
    except AnalysisException as error:
        raise InvalidSQLError(f"Spark refuses the SQL: {_brief(str(error))}") from error
    except PySparkException as error:
        raise SparkFailure(_brief(str(error))) from error
    except Py4JError as error:
        raise SparkFailure(f"Spark stopped answering: {_brief(str(error))}") from error
    except (TypeError, ValueError) as error:
        if "pyspark" in ((error.__traceback__ and str(error.__class__.__module__)) or ""):
            raise InvalidInputError(str(error)) from error
        raise


def _brief(message: str) -> str:
    """The part of Spark's message that a person needs."""
    text = message.split("\n\nJVM stacktrace")[0].split("\n\tat ")[0]
    text = re.sub(r";\s*line \d+ pos \d+;?.*$", "", text, flags=re.DOTALL)
    text = re.split(r"\n\s*'?[+:]?-? ?'?(Project|Aggregate|Filter|Join|Sort|Distinct)\b", text)[0]
    found = _CONDITION.match(text.strip())
    if found:
        text = f"{found.group(2)} ({found.group(1)})"
    text = re.sub(r"\s+", " ", text).strip()
    return text[:600]
