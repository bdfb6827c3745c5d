"""The rows that an insertion gives itself, as the driver can append them: literals of VALUES, and plain Python values.

What a value becomes in its column must be the same in every session, for Spark, Python and Arrow. Where that is in any
doubt, a function here returns None, and Spark runs the statement.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deferred import failpoints
from deferred.algebra.types import Columns
from deferred.errors import DeferredError
from deferred.spark.driver import exact_type
from deferred.spark.values import DATE
from deferred.sql.dialect import parse_statement

if TYPE_CHECKING:
    import pyarrow as pa

HELD_ROWS = 10_000
"""More rows than this are left to Spark."""

FIRST_YEAR = 1900
"""Of dates and times before that, calendars and time zones say different things."""

WHOLE_DIGITS = 18
"""A literal with more digits may be read as a number of a wider type."""

DOUBLE_DIGITS = 15
"""Every number with so many digits is a floating-point number of its own."""

SETTINGS = frozenset(
    {
        "spark.sql.session.timeZone",
        "spark.sql.ansi.enabled",
        "spark.sql.parquet.fieldId.read.enabled",
        "spark.sql.parquet.fieldId.write.enabled",
    }
)
"""The settings that sessions with Delta have, and on which the meaning of no value that is taken here depends."""

_WHOLE = re.compile(r"[0-9]{1,18}")
_DECIMAL = re.compile(r"[0-9]{1,18}\.[0-9]{1,18}")
_STRANGE = re.compile(r"[\x00-\x1f\x7f'\"\\$]")
"""Characters that settings let mean something else in a literal."""

_LIMITS = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63}


class _Doubtful(Exception):
    """A value of which it is not certain that Spark would store the same."""


def of_values(statement: str, columns: Columns, settings: Mapping[str, str]) -> pa.Table | None:
    """The rows of INSERT INTO t VALUES … in the order of the table's columns.

    >>> rows = of_values("INSERT INTO t VALUES (1, 'a'), (-2, NULL)", [("a", "int"), ("b", "string")], {})
    >>> rows.to_pylist()
    [{'a': 1, 'b': 'a'}, {'a': -2, 'b': None}]
    >>> of_values("INSERT INTO t VALUES (1.5, 'a')", [("a", "int"), ("b", "string")], {}) is None
    True
    """
    if not settings.keys() <= SETTINGS or "\\" in statement or "${" in statement:
        return None
    try:
        insertion = parse_statement(statement, verbatim=True)
    except DeferredError:
        return None
    values = insertion.args.get("expression")
    if not isinstance(insertion, exp.Insert) or not _is_plain(insertion, "this", "expression"):
        return None
    if not isinstance(values, exp.Values) or not _is_plain(values, "expressions"):
        return None
    order = _order(insertion.this, [name for name, _ in columns])
    rows = values.expressions
    if order is None or len(rows) > HELD_ROWS:
        return None
    if any(not isinstance(row, exp.Tuple) or len(row.expressions) != len(columns) for row in rows):
        return None
    return _table([[row.expressions[place] for place in order] for row in rows], columns, _literal)


def _is_plain(node: exp.Expr, *parts: str) -> bool:
    """Whether a part of a statement says nothing but these things."""
    return all(name in parts or not value for name, value in node.args.items())


def _order(target: exp.Expr, names: Sequence[str]) -> list[int] | None:
    """For each column of the table its place in a row; None unless each is given exactly once."""
    if isinstance(target, exp.Table):
        return list(range(len(names))) if _is_plain(target, "this", "db") else None
    if not isinstance(target, exp.Schema) or not isinstance(target.this, exp.Table):
        return None
    if not _is_plain(target.this, "this", "db") or not all(isinstance(c, exp.Identifier) for c in target.expressions):
        return None
    given = [identifier.name.casefold() for identifier in target.expressions]
    wanted = [name.casefold() for name in names]
    return [given.index(name) for name in wanted] if sorted(given) == sorted(set(wanted)) else None


def _literal(node: exp.Expr, type_: str) -> Any:
    """The value that a literal has in a column of a type."""
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean) and type_ == "boolean":
        return bool(node.this)
    if isinstance(node, exp.Cast) and type(node) is exp.Cast and type_ == "date":
        return _date(node)
    sign, number = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
    if not isinstance(number, exp.Literal):
        raise _Doubtful
    if number.is_string:
        if type_ != "string" or sign < 0 or _STRANGE.search(number.this):
            raise _Doubtful
        return str(number.this)
    return _number(number.this, sign, type_)


def _number(digits: str, sign: int, type_: str) -> Any:
    if _WHOLE.fullmatch(digits) and type_ in _LIMITS:
        return sign * int(digits)
    if not (_WHOLE.fullmatch(digits) or _DECIMAL.fullmatch(digits)) or len(digits) > WHOLE_DIGITS:
        raise _Doubtful
    if type_.startswith("decimal("):
        return sign * Decimal(digits)
    value = float(digits)
    if type_ != "double" or len(digits) > DOUBLE_DIGITS or (sign < 0 and not value):
        raise _Doubtful
    return sign * value


def _date(node: exp.Cast) -> date:
    of = node.this
    if not (
        isinstance(of, exp.Literal) and of.is_string and node.to.this == exp.DType.DATE and DATE.fullmatch(of.this)
    ):
        raise _Doubtful
    try:
        return date.fromisoformat(of.this)
    except ValueError:
        raise _Doubtful from None


def of_python(rows: Sequence[Sequence[Any]], columns: Columns) -> pa.Table | None:
    """Rows of Python values in the order of the table's columns.

    >>> of_python([(1, "a")], [("a", "int"), ("b", "string")]).to_pylist()
    [{'a': 1, 'b': 'a'}]
    >>> of_python([("1", "a")], [("a", "int"), ("b", "string")]) is None
    True
    """
    return _table(rows, columns, _plain) if 0 < len(rows) <= HELD_ROWS else None


def _plain(value: Any, type_: str) -> Any:
    """A value of Python as a column of a type stores it."""
    if value is None:
        return None
    kind = type(value)
    if kind is int and type_.startswith("decimal("):
        return Decimal(value)
    if kind is int and type_ == "double" and abs(value) < 10**DOUBLE_DIGITS:
        return float(value)
    if type_ == "timestamp":
        return _moment(value)
    if type_ == "timestamp_ntz" and (kind is not datetime or value.tzinfo is not None):
        raise _Doubtful
    if kind is not _PYTHON_TYPES.get(type_.partition("(")[0]):
        raise _Doubtful
    return value


def _moment(value: Any) -> datetime:
    """A time with its zone; one without would depend on where it is read."""
    if type(value) is not datetime or value.tzinfo is None:
        raise _Doubtful
    return value.astimezone(UTC)


_PYTHON_TYPES = {
    **dict.fromkeys(_LIMITS, int),
    "decimal": Decimal,
    "double": float,
    "string": str,
    "boolean": bool,
    "binary": bytes,
    "date": date,
    "timestamp_ntz": datetime,
}
"""What a value must be to become one of a type as it is; single-precision numbers are left to Spark, which rounds."""


def _table(rows: Sequence[Sequence[Any]], columns: Columns, value: Callable[[Any, str], Any]) -> pa.Table | None:
    import pyarrow as pa

    types = [exact_type(type_) for _, type_ in columns]
    if None in types:
        return None
    try:
        parts = [
            [_fitting(value(row[place], type_), type_) for row in rows] for place, (_, type_) in enumerate(columns)
        ]
        arrays = [pa.array(part, type_) for part, type_ in zip(parts, types, strict=True)]
    except (_Doubtful, pa.ArrowException, ValueError, TypeError, OverflowError):
        return None
    return pa.table(arrays, [name for name, _ in columns])


def _fitting(value: Any, type_: str) -> Any:
    """A value that a column of a type holds without rounding it; else _Doubtful."""
    if type_ in _LIMITS and value is not None and not -_LIMITS[type_] <= value < _LIMITS[type_]:
        raise _Doubtful
    if isinstance(value, Decimal):
        precision, scale = map(int, type_.removeprefix("decimal(").rstrip(")").split(","))
        if not value.is_finite() or -int(value.as_tuple().exponent) > scale:
            raise _Doubtful
        if abs(value) >= Decimal(10) ** (precision - scale):
            raise _Doubtful
    if isinstance(value, float) and (not math.isfinite(value) or (value == 0 and math.copysign(1, value) < 0)):
        raise _Doubtful
    if isinstance(value, date) and value.year < FIRST_YEAR:
        raise _Doubtful
    if isinstance(value, str):
        value.encode()  # a surrogate alone is no text
    return value


def stage(rows: pa.Table, target: str, path: str) -> bool:
    """Write rows for a table as the Parquet files that a statement reads; False where only Spark can write there."""
    from pyarrow import parquet

    if "://" in path:
        return False
    failpoints.reached(f"staged rows for {target}")
    try:
        os.makedirs(path, exist_ok=True)
        parquet.write_table(rows, f"{path}/rows.parquet")
    except OSError:
        return False
    return True


def staged(path: str, columns: Columns) -> pa.Table | None:
    """The rows that `stage` has written, if they are those of a table with these columns."""
    from pyarrow import parquet

    file = f"{path}/rows.parquet"
    if "://" in path or not os.path.exists(file):
        return None
    rows = parquet.read_table(file)
    wanted = [(name, exact_type(type_)) for name, type_ in columns]
    return rows if list(zip(rows.schema.names, rows.schema.types, strict=True)) == wanted else None
