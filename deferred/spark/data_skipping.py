"""Conditions with literal values that hold for every row of a small result: files without such rows are skipped.

A join with a small result skips no file: Spark reads the whole other side and then compares. The same values written as
literals reach the statistics of files and row groups. A condition here only restricts what is read; what is read is
still compared exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from heapq import nlargest
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deferred.algebra.bags import column
from deferred.spark.driver import has_sound_statistics

if TYPE_CHECKING:
    import pyarrow as pa

RANGES = 16
"""Values are covered by at most this many ranges, split at the largest gaps between them."""

TELLING = 3
"""Rows are looked for by at most this many columns, those with the most values."""

LISTED = 2_000
"""Up to this many different values are listed one by one."""


KEYS = 100
"""Up to this many different keys of several columns are written as literals, instead of being joined."""

VALUES = 1_000
"""Up to this many different values of one column are written as literals, instead of being joined."""


def one_of(rows: pa.Table, pairs: Sequence[tuple[str, exp.Expr]]) -> exp.Expr | None:
    """The condition that expressions have together the values that columns have in some row; NULL equals NULL.

    None where there are more than KEYS such keys, or VALUES of one column, or a type has no exact literals.

    >>> import pyarrow as pa
    >>> one_of(pa.table({"k": [2, 1, None, 1]}), [("k", column("a"))]).sql(dialect="spark")
    '`a` IN (CAST(1 AS BIGINT), CAST(2 AS BIGINT)) OR `a` IS NULL'
    """
    found = [(expression, _distinct(rows.column(name))) for name, expression in pairs]
    written = [(expression, values) for expression, values in found if values is not None]
    if len(written) < len(found):
        return None
    names = [name for name, _ in pairs]
    keys = rows.select(names).group_by(names).aggregate([])
    if keys.num_rows > (VALUES if len(written) == 1 else KEYS):
        return None
    if len(written) == 1:
        ((of, (known, has_null, write)),) = written
        listed: list[exp.Expr] = [exp.In(this=of.copy(), expressions=list(map(write, known)))] if known else []
        return _any(listed, of, has_null) if keys.num_rows else exp.false()
    tuples = zip(*(keys.column(name).to_pylist() for name, _ in pairs), strict=True)
    each = [
        exp.Paren(
            this=exp.and_(
                *(
                    exp.Is(this=of.copy(), expression=exp.Null()) if value is None else of.copy().eq(write(value))
                    for value, (of, (_, _, write)) in zip(key, written, strict=True)
                ),
                copy=False,
            )
        )
        for key in tuples
    ]
    return exp.or_(*each, copy=False) if each else exp.false()


def within_ranges(values: pa.ChunkedArray, of: exp.Expr) -> exp.Expr | None:
    """The condition that an expression lies in a range of the values, None for types without exact literals."""
    found = _distinct(values)
    if found is None:
        return None
    known, has_null, write = found
    return _within(ranges(known), has_null, write, of)


def within_spans(spans: pa.Table, of: exp.Expr) -> exp.Expr | None:
    """The same for values that are covered already by ranges, `low` to `high` and in order, with NULLs for NULL."""
    has_null, known = spans.column("low").null_count > 0, spans.drop_null()
    write = _writer(known.column("low").type)
    pairs = list(zip(*(known.column(name).to_pylist() for name in ("low", "high")), strict=True))
    return None if write is None else _within(merged(pairs), has_null, write, of)


def _within(
    spans: Sequence[tuple[Any, Any]], has_null: bool, write: Callable[[Any], exp.Expr], of: exp.Expr
) -> exp.Expr:
    parts = [
        of.copy().eq(write(low)) if low == high else exp.Between(this=of.copy(), low=write(low), high=write(high))
        for low, high in spans
    ]
    return _any([exp.Paren(this=part) for part in parts], of, has_null)


def near_values(values: pa.ChunkedArray, of: exp.Expr) -> exp.Expr | None:
    """The condition that an expression has one of the values, or lies in a range of them where that says as much.

    Ranges reach the statistics of files, a list also those of the pages in them.
    """
    found = _distinct(values)
    if found is None:
        return None
    known, has_null, write = found
    covered = _within(ranges(known), has_null, write, of)
    if not RANGES < len(known) <= VALUES:
        return covered
    listed = exp.In(this=of.copy(), expressions=list(map(write, known)))
    return exp.and_(exp.Paren(this=covered), exp.Paren(this=_any([listed], of, has_null)), copy=False)


def among_values(rows: pa.Table, names: Sequence[str]) -> exp.Expr | None:
    """The condition that columns have values which they have in some row, as selective as it can be written.

    None if no column has a type with exact literals and few enough values.
    """
    import pyarrow as pa

    found = [
        (name, values)
        for name in names
        # Delta 4.4 fails on decimals in REPLACE WHERE ("MatchError").
        if not pa.types.is_decimal(rows.schema.field(name).type)
        and (values := _distinct(rows.column(name))) is not None
    ]
    few = [(name, values) for name, values in found if len(values[0]) <= LISTED]
    telling = sorted(few, key=lambda each: -len(each[1][0]))[:TELLING]
    conditions: list[exp.Expr] = []
    for name, (known, has_null, write) in telling:
        listed: list[exp.Expr] = [exp.In(this=column(name), expressions=list(map(write, known)))] if known else []
        conditions.append(_any(listed, column(name), has_null))
        if len(known) > 1:
            covered = within_ranges(rows.column(name), column(name))
            assert covered is not None
            conditions.append(covered)
    return exp.and_(*(exp.Paren(this=condition) for condition in conditions), copy=False) if conditions else None


def ranges(values: Sequence[Any]) -> list[tuple[Any, Any]]:
    """At most RANGES ranges that cover sorted values, split where the gaps between them are largest.

    >>> ranges([1, 2, 3, 900, 901])
    [(1, 3), (900, 901)]
    >>> ranges(["a", "c"])
    [('a', 'c')]
    """
    return merged([(value, value) for value in values])


def merged(spans: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """At most RANGES ranges that cover others, which are in order: where the gaps are smallest, they are joined.

    >>> merged([(1, 3), (4, 6), (900, 901)])
    [(1, 6), (900, 901)]
    """
    if not spans:
        return []
    first, last = spans[0][0], spans[-1][1]
    if not isinstance(first, (int, Decimal, date)):
        return [(first, last)]
    gaps = ((after[0] - before[1], i) for i, (before, after) in enumerate(pairwise(spans), 1))
    # A gap is worth a range of its own when it leaves out a good part of the whole spread.
    splits = sorted(i for gap, i in nlargest(RANGES - 1, gaps) if gap * 4 * RANGES > last - first)
    return [(spans[a][0], spans[b - 1][1]) for a, b in pairwise([0, *splits, len(spans)])]


def disjoint(spans: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Ranges in any order, in order and without overlaps.

    >>> disjoint([(7, 9), (1, 5), (2, 3)])
    [(1, 5), (7, 9)]
    """
    found: list[tuple[Any, Any]] = []
    for low, high in sorted(spans):
        if found and low <= found[-1][1]:
            low, last = found.pop()
            high = max(last, high)
        found.append((low, high))
    return found


def holding(files: Sequence[Mapping[str, Any]], rows: pa.Table, names: Sequence[str]) -> list[Mapping[str, Any]]:
    """The files that may hold values of some columns that are in rows, by the statistics of the files."""
    found = list(files)
    for name in names:
        values = rows.column(name)
        if has_sound_statistics(values.type) and not values.null_count:
            spans = _ranges_of(values)
            found = [file for file in found if spans is None or overlaps(file, name, spans)]
    return found


def _ranges_of(values: pa.ChunkedArray) -> list[tuple[Any, Any]] | None:
    """Ranges of a column without NULLs, of many values but whole numbers one; None for values that Python has not.

    >>> import pyarrow as pa
    >>> _ranges_of(pa.chunked_array([[90000, *range(2000), 90001]]))
    [(0, 1999), (90000, 90001)]
    """
    import numpy as np
    import pyarrow as pa
    from pyarrow import compute

    known = compute.unique(values)
    known = known.take(compute.sort_indices(known))
    splits: list[int] = []
    if (pa.types.is_integer(known.type) or pa.types.is_date32(known.type)) and len(known) > VALUES:
        whole = known.cast(pa.int32()) if pa.types.is_date32(known.type) else known
        places = whole.to_numpy().astype(float)
        gaps = np.diff(places)
        largest = np.sort(np.argsort(gaps)[-(RANGES - 1) :])
        splits = [int(i) + 1 for i in largest if gaps[i] * 4 * RANGES > places[-1] - places[0]]
    try:
        if len(known) <= VALUES:
            return ranges(known.to_pylist())
        return [(known[a].as_py(), known[b - 1].as_py()) for a, b in pairwise([0, *splits, len(known)])]
    except (ValueError, OverflowError):
        return None


def overlaps(file: Mapping[str, Any], name: str, spans: Sequence[tuple[Any, Any]]) -> bool:
    """Whether a file may have values of a column in some ranges, by its statistics."""
    low, high = file.get(f"min.{name}"), file.get(f"max.{name}")
    try:
        return low is None or high is None or any(low <= end and begin <= high for begin, end in spans)
    except TypeError:  # the statistics are written in another type
        return True


def _any(parts: list[exp.Expr], of: exp.Expr, has_null: bool) -> exp.Expr:
    if has_null or not parts:
        parts = [*parts, exp.Is(this=of.copy(), expression=exp.Null())]
    return exp.or_(*parts, copy=False)


def _distinct(values: pa.ChunkedArray) -> tuple[list[Any], bool, Callable[[Any], exp.Expr]] | None:
    """The different values in order, whether NULL is among them, and how they are written."""
    from pyarrow import compute

    write = _writer(values.type)
    if write is None:
        return None
    try:
        known = compute.unique(values).to_pylist()
    except (ValueError, OverflowError):  # a date that Python does not know, a text that is not UTF-8
        return None
    # Spark and Parquet order text by its bytes, which is the order of its code points, as in Python.
    return sorted(value for value in known if value is not None), None in known, write


def _writer(type_: pa.DataType) -> Callable[[Any], exp.Expr] | None:
    """How values of a type are written; None for types without exact literals."""
    import pyarrow as pa

    integers = {pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INT", pa.int64(): "BIGINT"}
    if type_ in integers:
        name = integers[type_]
        return lambda value: exp.cast(_number(value), name)
    if pa.types.is_decimal(type_):
        name = f"DECIMAL({type_.precision}, {type_.scale})"
        return lambda value: exp.cast(exp.Literal.string(str(value)), name, dialect="spark")
    if pa.types.is_date(type_):
        return lambda value: exp.cast(exp.Literal.string(value.isoformat()), "DATE", dialect="spark")
    return exp.Literal.string if pa.types.is_string(type_) or pa.types.is_large_string(type_) else None


def _number(value: int) -> exp.Expr:
    return exp.Neg(this=exp.Literal.number(-value)) if value < 0 else exp.Literal.number(value)
