"""Temporary results of one operation: small ones come to the driver, large ones stay in Spark.

A small result is one Spark job, and its rows, their number and the range of their keys are known without another. Spark
plans what reads it with exact statistics: it broadcasts it, and drops what is joined with an empty one.

A large result is a checkpoint, not a cache: a cached result carries the plan it came from into every plan that reads
it, and planning time would double with every step that reads another.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deferred.algebra.bags import alias, call, column, select
from deferred.spark.session import adopted, checkpointed, settings
from deferred.spark.statements import Statement, statement_text, translated
from deferred.sql.dialect import cast, quoted, text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

LOCAL_ROWS = 300_000
"""Up to this many rows come to the driver, if they are narrow."""

LOCAL_BYTES = 16 * 2**20
"""Of wide rows, so many come to the driver as have about so many bytes."""

BROADCAST_ROWS = 300_000
"""Up to this many changed rows are sent to the data instead of shuffling the data to them."""

BUCKETS = 1_000
"""The values of a large result are covered by ranges that begin and end in one of so many parts of their spread."""

PARTS = 16
"""A result that grows by this many others is stored as one: Spark plans each of them wherever it is read."""

LITTLE = {
    "spark.sql.adaptive.enabled": "false",
    # Compiling a plan to Java takes longer than interpreting it for a few thousand rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # A broadcast is a job of its own; so few rows are joined in one place as they are.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.optimizer.disableHints": "true",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
}
"""The settings for a query that reads only a few rows that are at the driver: one job, of few tasks."""

LITTLE_ROWS = 5_000
"""So many rows are few."""

UNKNOWN = 2**62
"""As an expected number of rows: as many as there may be."""


_WIDTHS = {"boolean": 1, "tinyint": 1, "smallint": 2, "int": 4, "float": 4, "date": 4}
_WIDTHS |= dict.fromkeys(("bigint", "double", "timestamp", "timestamp_ntz"), 8)


def width(types: Iterable[str]) -> int:
    """About how many bytes the columns of a row have.

    >>> width(["int", "string", "decimal(12,2)", "array<int>"])
    564
    """
    return sum(
        _WIDTHS.get(type_) or (16 if type_.startswith("decimal") else 512 if "<" in type_ else 32) for type_ in types
    )


def local_rows(types: Iterable[str]) -> int:
    """How many rows of some columns come to the driver."""
    return min(LOCAL_ROWS, LOCAL_BYTES // max(1, width(types)))


@dataclass(frozen=True)
class Result:
    """A computed result: the number of its rows, and the rows where they are at the driver."""

    count: int
    rows: pa.Table | None
    schema: StructType | str | None = None
    parts: int = 1
    """How many results it was put together from, without having been stored as one."""


class Temporaries:
    """Results that later statements of one operation read under their names, dropped when it ends."""

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._session = session
        self._prefix = f"deferred_{uuid.uuid4().hex[:12]}"
        self._results: dict[str, Result] = {}
        self._unread: set[str] = set()
        self._spans: dict[tuple[str, str], pa.Table | None] = {}
        self._larger_than_expected = False

    @cached_property
    def _spark(self) -> SparkSession:
        """The operation's session, taken when Spark is first needed: rows at the driver may be all there is."""
        return self._session()

    def compute(self, step: str, query: Statement, expected: int = UNKNOWN) -> exp.Table:
        """Computes a query and returns the table to read its rows from, in any statement."""
        return self.ready(self.result(step, query, expected))

    def result(self, step: str, query: Statement, expected: int) -> exp.Table:
        """Computes a query and returns the table to read its rows from, in other queries here or once it is `ready`.

        `expected` is about how many rows it has. Where that is few, one job brings them to the driver; a result that
        turns out to be large is computed again, and after it the operation expects no other small one. A result of
        unknown size is stored first, and comes to the driver if it is small.
        """
        with translated(), settings(self._spark, LITTLE if self._is_at_driver(query) else {}):
            frame = self._frame(query)
            schema, most = frame.schema, _most(frame.schema)
            if expected <= most and not self._larger_than_expected:
                rows = frame.limit(most + 1).toArrow()
                if rows.num_rows <= most:
                    return self.hold(step, rows, schema)
                self._larger_than_expected = True
            frame = checkpointed(self._spark, frame)
            count = frame.count()
            if count <= most:  # much was read for a small result, such as groups
                return self.hold(step, frame.toArrow(), schema)
            if count <= BROADCAST_ROWS:
                frame = frame.coalesce(1).hint("broadcast") if count else frame.limit(0)
            return self._named(step, frame, Result(count, None))

    def compute_all(self, queries: Mapping[str, Statement], expected: int = UNKNOWN) -> dict[str, exp.Table]:
        """Computes several queries that do not read each other; where few rows are expected, by one job.

        Their rows are then those of one UNION ALL, each with columns of its own and NULL in those of the others.
        """
        if len(queries) > 1 and expected <= LOCAL_ROWS and not self._larger_than_expected:
            found = self._by_one_job(queries)
            if found is not None:
                return found
        return {step: self.compute(step, query, expected) for step, query in queries.items()}

    def _by_one_job(self, queries: Mapping[str, Statement]) -> dict[str, exp.Table] | None:
        """The results of all queries; None where their rows are too many, or cannot come to the driver together."""
        at_driver = all(map(self._is_at_driver, queries.values()))
        with translated(), settings(self._spark, LITTLE if at_driver else {}):
            frames = [self._frame(query) for query in queries.values()]
            # NULL in the place of a struct whose fields are never NULL is refused by Arrow.
            if not all(_is_exact_in_arrow(frame.schema) and not _has_nested(frame.schema) for frame in frames):
                return None
            names = [[f"c{i}_{j}" for j in range(len(frame.columns))] for i, frame in enumerate(frames)]
            parts = [
                frame.toDF(*own).selectExpr("*", f"{i} AS part")
                for i, (frame, own) in enumerate(zip(frames, names, strict=True))
            ]
            both = reduce(lambda all_, part: all_.unionByName(part, allowMissingColumns=True), parts)
            most = min(_most(frame.schema) for frame in frames)
            rows = both.limit(most + 1).toArrow()
            if rows.num_rows > most:
                self._larger_than_expected = True
                return None
            return {
                step: self.put(step, _part(rows, i, own).rename_columns(frame.columns), frame.schema)
                for i, (step, frame, own) in enumerate(zip(queries, frames, names, strict=True))
            }

    def _is_at_driver(self, query: Statement) -> bool:
        """Whether a query reads nothing but a few rows that are at the driver."""
        if isinstance(query, str):
            return False
        read = [self._results.get("" if table.db else table.name) for table in query.find_all(exp.Table)]
        counts = [result.count for result in read if result is not None and result.rows is not None]
        return len(counts) == len(read) and len(read) > 0 and sum(counts) <= LITTLE_ROWS

    def hold(self, step: str, rows: pa.Table, schema: StructType | str) -> exp.Table:
        """Takes rows that are at the driver; Spark is given them when a query reads them (`ready`)."""
        name = f"{self._prefix}_{step}"
        self._results[name] = Result(rows.num_rows, rows, schema)
        self._unread.add(name)
        return exp.to_table(name)

    def ready(self, result: exp.Table) -> exp.Table:
        """A result that a statement of Spark is going to read."""
        if result.name in self._unread:
            held = self._results[result.name]
            assert held.rows is not None
            assert held.schema is not None
            self.put(result.name.removeprefix(f"{self._prefix}_"), held.rows, held.schema)
        return result

    def fetched(self, query: exp.Query) -> pa.Table | None:
        """The rows of a query, which are not kept; None where they are many, or not exact at the driver."""
        with translated():
            frame = self._frame(query)
            most = _most(frame.schema)
            if self._larger_than_expected or most < 0:
                return None
            rows = frame.limit(most + 1).toArrow()
            return rows if rows.num_rows <= most else None

    def _frame(self, query: Statement) -> DataFrame:
        for table in query.find_all(exp.Table) if isinstance(query, exp.Expr) else ():
            self.ready(table)
        return self._spark.sql(statement_text(query))

    def put(self, step: str, rows: pa.Table, schema: StructType | str) -> exp.Table:
        """Takes rows that are at the driver; returns the table to read them from."""
        rows = rows.combine_chunks()  # of several chunks that begin with an empty one, Spark 4.2 takes no row
        with translated():
            frame = self._spark.createDataFrame(rows if rows.num_rows else [], schema)
            return self._named(step, frame, Result(rows.num_rows, rows, schema))

    def copy(self, step: str, result: exp.Table) -> exp.Table:
        """Gives a computed result another name, under which it stays when the first one is computed again."""
        known = self._results[result.name]
        if known.rows is not None and known.schema is not None:
            return self.hold(step, known.rows, known.schema)
        return self._named(step, self._spark.table(result.name), known)

    def append(self, step: str, result: exp.Table, more: exp.Table) -> exp.Table:
        """Adds the rows of one computed result to another's; returns the table to read both from."""
        first, second = self._results[result.name], self._results[more.name]
        count = first.count + second.count
        if first.rows is not None and second.rows is not None and first.schema is not None and count <= LOCAL_ROWS:
            from deferred.spark.at_driver import joined  # it knows all operators, which take a moment to load

            return self.hold(step, joined([first.rows, second.rows]), _with_nulls(first.schema))
        with translated():
            frame = self._spark.table(self.ready(result).name).union(self._spark.table(self.ready(more).name))
            parts = first.parts + 1
            if parts == PARTS:
                frame, parts = checkpointed(self._spark, frame), 1
            return self._named(step, frame, Result(count, None, parts=parts))

    def first_rows(self, result: exp.Table, number: int = 3) -> list[tuple[Any, ...]]:
        """Returns a few rows of a computed result."""
        rows = self._results[result.name].rows
        if rows is not None:
            return [tuple(row.values()) for row in rows.slice(0, number).to_pylist()]
        with translated():
            return [tuple(row) for row in self._spark.table(result.name).limit(number).collect()]

    def _named(self, step: str, frame: DataFrame, result: Result) -> exp.Table:
        name = f"{self._prefix}_{step}"
        self._unread.discard(name)
        self._spans = {asked: spans for asked, spans in self._spans.items() if asked[0] != name}
        frame.createOrReplaceTempView(name)
        self._results[name] = result
        return exp.to_table(name)

    def rows(self, result: exp.Table) -> int:
        """Returns the number of rows of a computed result."""
        return self._results[result.name].count

    def local(self, result: exp.Table) -> pa.Table | None:
        """Returns the rows of a computed result where they are at the driver."""
        found = self._results.get(result.name)
        return None if found is None else found.rows

    def spans(self, result: exp.Table, name: str) -> pa.Table | None:
        """Ranges, `low` to `high` and in order, that cover a column of a result that stays in Spark; NULLs for NULL.

        None for types whose values have no distance, and where there is no value.
        """
        if result.name not in self._results:
            return None
        if (result.name, name) not in self._spans:
            with translated():
                self._spans[result.name, name] = self._spans_of(result, name)
        return self._spans[result.name, name]

    def _spans_of(self, result: exp.Table, name: str) -> pa.Table | None:
        from pyspark.sql import types

        values, type_ = column(name), self._spark.table(result.name).schema[name].dataType
        if not isinstance(type_, (types.IntegralType, types.DecimalType, types.DateType)):
            return None
        place = cast(call("UNIX_DATE", values) if isinstance(type_, types.DateType) else values, "double")
        least, greatest = (alias(call(name, place.copy()), name) for name in ("MIN", "MAX"))
        ((first, last),) = self._spark.sql(text(select([least, greatest], result.copy()))).collect()
        if first is None:
            return None
        beyond = exp.Sub(this=place, expression=_double(first))
        part = call("FLOOR", exp.Mul(this=beyond, expression=_double(min(1.0, BUCKETS / max(1.0, last - first)))))
        ends = [alias(call("MIN", values.copy()), "low"), alias(call("MAX", values.copy()), "high")]
        return self._spark.sql(text(select(ends, result.copy()).group_by(part))).toArrow().sort_by("low")

    def lasting(self, result: exp.Table, spark: SparkSession) -> DataFrame:
        """Returns a computed result as a DataFrame of another session, which is valid after the operation's end."""
        with translated():
            rows = self._results[result.name].rows
            frame = self._spark.table(self.ready(result).name)
            if rows is not None:
                return spark.createDataFrame(rows.combine_chunks(), frame.schema)
            frame.createOrReplaceGlobalTempView(result.name)
            try:
                return adopted(spark, f"global_temp.{quoted(result.name)}")
            finally:
                spark.catalog.dropGlobalTempView(result.name)

    def drop(self) -> None:
        for name in self._results.keys() - self._unread:
            # Spark frees the rows when nothing refers to them. The session may have been stopped in the meantime.
            try:
                self._spark.catalog.dropTempView(name)
            except Exception:
                return
        self._results.clear()


def _part(rows: pa.Table, number: int, names: Sequence[str]) -> pa.Table:
    """The rows of one of several queries that were computed together."""
    from pyarrow import compute

    return rows.filter(compute.equal(rows.column("part"), number)).select(list(names))


def _with_nulls(schema: StructType | str) -> StructType | str:
    """A schema whose columns may be NULL: other rows may have NULLs where those it was made for have none."""
    from pyspark.sql.types import StructField, StructType

    if isinstance(schema, str):
        return schema
    return StructType([StructField(field.name, field.dataType, True, field.metadata) for field in schema.fields])


def _double(value: float) -> exp.Expr:
    return cast(exp.Literal.string(repr(value)), "double")


def _most(schema: StructType) -> int:
    """How many rows with a schema come to the driver; −1 where their values would not be what they were."""
    return local_rows(field.dataType.simpleString() for field in schema.fields) if _is_exact_in_arrow(schema) else -1


def _has_nested(schema: StructType) -> bool:
    return any("<" in field.dataType.simpleString() for field in schema.fields)


def _is_exact_in_arrow(type_: DataType) -> bool:
    """Whether values of a type come back from the driver as they were, bit by bit."""
    from pyspark.sql import types

    if isinstance(type_, types.StructType):
        names = [field.name.casefold() for field in type_.fields]
        return len(set(names)) == len(names) and all(_is_exact_in_arrow(field.dataType) for field in type_.fields)
    if isinstance(type_, types.ArrayType):
        return _is_exact_in_arrow(type_.elementType)
    if isinstance(type_, types.MapType):
        return _is_exact_in_arrow(type_.keyType) and _is_exact_in_arrow(type_.valueType)
    if isinstance(type_, types.StringType):
        return type_.simpleString() == "string"  # no collation
    exact: tuple[Any, ...] = (
        types.NumericType,
        types.BooleanType,
        types.BinaryType,
        types.DateType,
        types.TimestampType,
        types.TimestampNTZType,
    )
    return isinstance(type_, exact)
