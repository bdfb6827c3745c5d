"""Bags as Arrow tables at the driver: counted, netted, written out. What `algebra.bags` is for SQL.

Rows are compared by Python or by Arrow, so only types whose equal values are the same value are counted here: no
floating-point numbers, at any depth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deferred.algebra.bags import COUNT

if TYPE_CHECKING:
    import pyarrow as pa


def netted(rows: pa.Table) -> pa.Table | None:
    """A signed bag in which every row occurs once and never with the count zero; None for floating-point numbers."""
    import pyarrow as pa

    if any(pa.types.is_floating(type_) for type_ in rows.schema.types):
        return None
    if all(map(is_compared_as_in_sql, rows.schema.types)):
        return summed(rows)
    *values, counts = (comparable(column).to_pylist() for column in rows.columns)
    found: Counter[tuple[Any, ...]] = Counter()
    first: dict[tuple[Any, ...], int] = {}
    for number, (*row, count) in enumerate(zip(*values, counts, strict=True)):
        found[tuple(row)] += count
        first.setdefault(tuple(row), number)
    left = {first[row]: count for row, count in found.items() if count}
    kept = rows.take(pa.array(left.keys(), pa.int64()))
    return kept.set_column(rows.num_columns - 1, COUNT, pa.array(left.values(), pa.int64()))


def summed(rows: pa.Table) -> pa.Table:
    """The same by Arrow alone, for types that it compares as SQL does; COUNT is the last column."""
    from pyarrow import compute

    totals = rows.group_by(rows.column_names[:-1]).aggregate([(COUNT, "sum")])
    totals = totals.rename_columns([COUNT if c == f"{COUNT}_sum" else c for c in totals.column_names])
    return totals.filter(compute.not_equal(totals.column(COUNT), 0)).select(rows.column_names)


def repeated(rows: pa.Table, counts: Sequence[int]) -> pa.Table:
    """Each row as often as its count says."""
    return rows if set(counts) <= {1} else rows.take([i for i, n in enumerate(counts) for _ in range(n)])


def has_floats_inside(type_: pa.DataType) -> bool:
    """Whether values of a type hold floating-point numbers, at any depth."""
    import pyarrow as pa

    if pa.types.is_nested(type_):
        return any(has_floats_inside(type_.field(i).type) for i in range(type_.num_fields))
    return bool(pa.types.is_floating(type_))


def comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values that Python compares as they are: Spark's dates go beyond the year 9999, and texts need no UTF-8."""
    import pyarrow as pa

    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    if pa.types.is_string(column.type):
        return column.cast(pa.binary())
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def is_compared_as_in_sql(type_: pa.DataType) -> bool:
    """Whether two values of a type are the same in Arrow and in Python exactly if they are in SQL."""
    import pyarrow as pa

    kinds = (
        pa.types.is_integer,
        pa.types.is_boolean,
        pa.types.is_string,
        pa.types.is_binary,
        pa.types.is_date,
        pa.types.is_timestamp,
    )
    return any(kind(type_) for kind in (*kinds, pa.types.is_decimal, pa.types.is_null))
