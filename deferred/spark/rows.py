"""Rows that a user hands over: as a DataFrame that fits a table, or refused with what does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from deferred.errors import DeferredError, InvalidInputError, nearest
from deferred.spark.engine import Engine, table, translated
from deferred.sql.dialect import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

    from deferred.metadata import TableRecord


def frame(engine: Engine, rows: Any, source: TableRecord) -> DataFrame:
    """A DataFrame with columns of a table, from a DataFrame or from rows as mappings or sequences."""
    if hasattr(rows, "schema") and hasattr(rows, "selectExpr"):
        return _known(rows, source)
    if hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # pandas
        return _known(engine.spark.createDataFrame(rows), source)
    with translated():
        schema = engine.spark.sql(f"SELECT * FROM {table(source.location)} LIMIT 0").schema
        for field in schema.fields:
            field.nullable = True
    names = schema.names
    try:
        listed = [tuple(map(_exact, _row(row, names, source.name), schema.fields)) for row in rows]
    except TypeError:
        raise InvalidInputError(f"Rows for {source.name} must be a DataFrame, or mappings or tuples.") from None
    try:
        with translated():
            return engine.spark.createDataFrame(listed, schema)
    except (DeferredError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidInputError(f"The rows do not fit table {source.name}: {str(error)[:300]}") from error


def staged(engine: Engine, rows: DataFrame, source: TableRecord, path: str) -> list[str]:
    """Write rows, in the types of the table they are for, to a durable place; answers their columns.

    A value that does not fit fails here, before anything has changed.
    """
    types = {name.casefold(): (name, type_) for name, type_ in source.columns}
    expressions = []
    for name in rows.columns:
        target, type_ = types[name.casefold()]
        # A cast to VARCHAR would cut what is too long; the table itself refuses it.
        wide = "string" if type_.startswith(("char", "varchar")) else type_
        expressions.append(f"CAST({quoted(name)} AS {wide}) AS {quoted(target)}")
    try:
        with translated():
            rows.selectExpr(*expressions).write.mode("overwrite").parquet(path)
    except DeferredError as error:
        raise InvalidInputError(f"The rows do not fit table {source.name}: {error}") from error
    return [types[name.casefold()][0] for name in rows.columns]


def _known(rows: DataFrame, source: TableRecord) -> DataFrame:
    known = {name.casefold() for name, _ in source.columns}
    given = [name.casefold() for name in rows.columns]
    for name in rows.columns:
        if name.casefold() not in known:
            hint = nearest(name, [n for n, _ in source.columns])
            raise InvalidInputError(f"The rows do not fit table {source.name}: it has no column {name}{hint}")
    if len(set(given)) < len(given):
        raise InvalidInputError(f"The rows for {source.name} name a column twice: {', '.join(rows.columns)}")
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
                raise InvalidInputError(f"The rows do not fit table {target}: it has no column {name}"
                                        f"{nearest(name, names)}")
        return tuple(given.get(n.casefold()) for n in names)
    if isinstance(row, Sequence) and not isinstance(row, (str, bytes)):
        if len(row) != len(names):
            raise InvalidInputError(f"A row of {len(row)} values does not fit table {target}, which has {len(names)} "
                                    f"columns: {', '.join(names)}.")
        return tuple(row)
    raise InvalidInputError(f"A row for {target} must be a mapping or a tuple, not {type(row).__name__}.")
