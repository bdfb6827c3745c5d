"""Rows given by a user, as a DataFrame that fits a table; otherwise refused with the reason."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

from sqlglot import exp

from deferred import failpoints
from deferred.algebra.bags import alias, column, select
from deferred.errors import DeferredError, InvalidInputError, nearest
from deferred.spark.engine import Engine
from deferred.spark.statements import translated
from deferred.sql.dialect import cast, delta_table, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField, StructType


class Target(Protocol):
    """What must be known about the table that the rows are for."""

    @property
    def name(self) -> str: ...

    @property
    def location(self) -> str: ...

    @property
    def columns(self) -> Sequence[tuple[str, str]]: ...


def frame(engine: Engine, rows: Any, source: Target) -> DataFrame:
    """A DataFrame with columns of a table, from a DataFrame or from rows as mappings or sequences.

    What a mapping does not give is NULL.
    """
    if hasattr(rows, "schema") and hasattr(rows, "selectExpr"):
        return _known(rows, source)
    if hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # pandas
        return _known(engine.spark.createDataFrame(rows), source)
    return _frame(engine, rows, _schema(engine, source), source)


def frames(engine: Engine, rows: Any, source: Target, filled: Collection[str]) -> list[DataFrame]:
    """DataFrames to insert into a table, so that it fills the columns that it fills itself where a row omits them.

    Rows given as mappings that omit different ones of those columns are inserted by statements of their own.
    """
    if hasattr(rows, "schema") or hasattr(rows, "to_dict"):
        return [frame(engine, rows, source)]
    rows = list(rows) if hasattr(rows, "__iter__") else rows
    groups: dict[frozenset[str], list[Any]] = {}
    for row in rows if isinstance(rows, list) else []:
        given = row.asDict() if hasattr(row, "asDict") else row
        names = (
            {str(name).casefold() for name in given} if isinstance(given, Mapping) else {f.casefold() for f in filled}
        )
        groups.setdefault(frozenset(f for f in filled if f.casefold() not in names), []).append(row)
    if not any(groups):
        return [frame(engine, rows, source)]
    schema = _schema(engine, source)
    return [_frame(engine, part, schema, source).drop(*omitted) for omitted, part in groups.items()]


def _schema(engine: Engine, source: Target) -> StructType:
    """The columns of a table, all of which may be NULL here."""
    with translated():
        nothing = select([exp.Star()], delta_table(source.location)).limit(0, copy=False)
        schema = engine.spark.sql(text(nothing)).schema
    for field in schema.fields:
        field.nullable = True
    return schema


def _frame(engine: Engine, rows: Any, schema: StructType, source: Target) -> DataFrame:
    names = schema.names
    listed = [tuple(map(_exact, row, schema.fields)) for row in matched(rows, names, source.name)]
    try:
        with translated():
            return engine.spark.createDataFrame(listed, schema)
    except (DeferredError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidInputError(f"The rows do not fit table {source.name}: {str(error)[:300].rstrip('. ')}.") from error


def matched(rows: Any, names: Sequence[str], target: str) -> list[tuple[Any, ...]]:
    """Rows given as mappings or sequences, their values in the order of a table's columns."""
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise InvalidInputError(
            f"Rows for {target} must be a DataFrame, or mappings or tuples, not {type(rows).__name__}."
        )
    return [_row(row, names, target) for row in rows]


def staged(rows: DataFrame, source: Target, path: str) -> list[str]:
    """Write rows as Parquet, in the types of the table they are for; returns their columns.

    A value that does not fit fails here, before any table has changed.
    """
    types = {name.casefold(): (name, type_) for name, type_ in source.columns}
    expressions = []
    for name in rows.columns:
        target, type_ = types[name.casefold()]
        # A cast to VARCHAR would truncate long values; the table itself refuses them.
        wide = "string" if type_.startswith(("char", "varchar")) else type_
        expressions.append(text(alias(cast(column(name), wide), target)))
    failpoints.reached(f"staged rows for {source.name}")
    try:
        with translated():
            rows.selectExpr(*expressions).write.mode("overwrite").parquet(path)
    except DeferredError as error:
        raise InvalidInputError(f"The rows do not fit table {source.name}: {error}") from error
    return [types[name.casefold()][0] for name in rows.columns]


def _known(rows: DataFrame, source: Target) -> DataFrame:
    known = {name.casefold() for name, _ in source.columns}
    given = [name.casefold() for name in rows.columns]
    for name in rows.columns:
        if name.casefold() not in known:
            hint = nearest(name, [n for n, _ in source.columns])
            raise InvalidInputError(f"The rows do not fit table {source.name}: it has no column {name}{hint}")
    if len(set(given)) < len(given):
        raise InvalidInputError(f"The rows for {source.name} name a column twice: {', '.join(rows.columns)}.")
    return rows


def _exact(value: Any, field: StructField) -> Any:
    """A whole number as a value of a DECIMAL or floating column, which Spark itself would refuse."""
    from pyspark.sql.types import DecimalType, FractionalType

    if not isinstance(value, int) or isinstance(value, bool):
        return value
    if isinstance(field.dataType, DecimalType):
        return Decimal(value)
    return float(value) if isinstance(field.dataType, FractionalType) else value


def _row(row: Any, names: Sequence[str], target: str) -> tuple[Any, ...]:
    if hasattr(row, "asDict"):
        row = row.asDict()
    if isinstance(row, Mapping):
        given = {str(k).casefold(): v for k, v in row.items()}
        for name in given:
            if name not in {n.casefold() for n in names}:
                raise InvalidInputError(
                    f"The rows do not fit table {target}: it has no column {name}{nearest(name, names)}"
                )
        return tuple(given.get(n.casefold()) for n in names)
    if isinstance(row, Sequence) and not isinstance(row, (str, bytes)):
        if len(row) != len(names):
            raise InvalidInputError(
                f"A row of {len(row)} values does not fit table {target}, which has {len(names)} "
                f"columns: {', '.join(names)}."
            )
        return tuple(row)
    raise InvalidInputError(f"A row for {target} must be a mapping or a tuple, not {type(row).__name__}.")
