"""The change feed of a few small commits, read at the driver: Delta's log names the files, Arrow reads them.

To Spark a feed of one row is a statement like any other, with planning, a snapshot and a job. Here it takes
milliseconds. By Delta's protocol, the changes of a commit are the rows of its change files; where it has none, the rows
of the files that it adds are inserted and those of the files that it removes are deleted.

Whatever makes rows of files anything else than rows of the table is left to Spark: `small_changes` returns None then,
and nothing was lost but a look at the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from sqlglot import exp

from deferred.algebra.bags import COUNT
from deferred.algebra.scalar import COMPARISONS, conjuncts, is_column
from deferred.algebra.types import Columns, as_read
from deferred.spark.driver import exact_type

if TYPE_CHECKING:
    import pyarrow as pa

    from deferred.log.delta_log import DeltaLog

COMMITS = 256
"""Of more commits than this, Spark reads the feed: each has at least one file of its own."""

BYTES = 16 * 2**20
"""Files of more bytes in all are left to Spark."""

_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,4})?")
"""Literals that Spark compares exactly with whole numbers, and with decimals of up to 28 digits."""

_DAY = re.compile(r"\d{4}-\d\d-\d\d")

CHANGE_TYPE = "_change_type"
SIGNS = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}


def small_changes(log: DeltaLog, after: int, upto: int, columns: Columns, most: int) -> pa.Table | None:
    """The changes from version `after` (excluded) to `upto` as a signed bag, not netted; None where Spark must read.

    That is: more than `most` rows, a type whose values Arrow may hold otherwise, a column that is not in the files
    under its name, a commit that gave the table another shape since, and a deletion vector.
    """
    if upto - after > COMMITS or log.version - after > COMMITS or not log.has_feed:
        return None
    if log.features & {"columnMapping", "typeWidening", "typeWidening-preview"}:
        return None
    now = {name: as_read(type_) for name, type_ in log.columns}
    if any(name in log.partitions or now.get(name) != as_read(type_) for name, type_ in columns):
        return None
    types = {name: exact_type(as_read(type_)) for name, type_ in columns}
    if None in types.values():
        return None
    files = list(_files(log, after, upto))
    if None in files or sum(int(file["size"]) for _, file in filter(None, files)) > BYTES:
        return None
    parts = []
    rows = 0
    for kind, file in filter(None, files):
        part = _read(log, kind, unquote(file["path"]), types)
        if part is None:
            return None
        parts.append(part)
        rows += part.num_rows
        if rows > most:
            return None
    return _concatenated(parts, types)


def _files(log: DeltaLog, after: int, upto: int) -> Iterator[tuple[str, Mapping[str, Any]] | None]:
    """(kind of action, action) of each file with changes; None where one cannot be read as it is."""
    commits = log.all_actions(after, log.version)
    if commits is None:
        yield None
        return
    for number, actions in enumerate(commits, start=after + 1):
        if any("metaData" in action or "protocol" in action for action in actions):
            yield None
        if number > upto:
            continue
        changed = [("cdc", action["cdc"]) for action in actions if "cdc" in action] or [
            (kind, action[kind])
            for action in actions
            for kind in ("add", "remove")
            if kind in action and action[kind].get("dataChange", True)
        ]
        for kind, file in changed:
            path = str(file["path"])
            away = path.startswith(("/", "file:")) or "://" in path
            yield None if away or file.get("deletionVector") or file.get("size") is None else (kind, file)


def _read(log: DeltaLog, kind: str, path: str, types: Mapping[str, Any]) -> pa.Table | None:
    """The rows of one file with their counts; None where Spark might read other values."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with log.opened(path) as stream:
            file = parquet.ParquetFile(stream, coerce_int96_timestamp_unit="us")
            if any(b"legacy" in key for key in file.schema_arrow.metadata or {}):
                return None  # old calendars of dates and times
            present = set(file.schema_arrow.names)
            wanted = [name for name in types if name in present]
            found = file.read([*wanted, CHANGE_TYPE] if kind == "cdc" else wanted)
        columns = [
            found.column(name).cast(type_) if name in present else pa.nulls(found.num_rows, type_)
            for name, type_ in types.items()
        ]
        if kind == "cdc":
            counts = [SIGNS[change] for change in found.column(CHANGE_TYPE).to_pylist()]
        else:
            counts = [1 if kind == "add" else -1] * file.metadata.num_rows
    except (OSError, KeyError, pa.ArrowException):
        return None  # Spark says what is wrong
    return pa.table([*columns, pa.array(counts, pa.int64())], [*types, COUNT])


def _concatenated(parts: Sequence[pa.Table], types: Mapping[str, Any]) -> pa.Table:
    import pyarrow as pa

    schema = pa.schema([*types.items(), (COUNT, pa.int64())])
    return pa.concat_tables([part.cast(schema) for part in parts]) if parts else schema.empty_table()


def meeting(rows: pa.Table, condition: exp.Expr | None) -> pa.Table | None:
    """The rows for which a condition is true; None where only Spark knows.

    Known here are comparisons of whole numbers, decimals, texts and dates with literals, IS [NOT] NULL, and what AND,
    OR and NOT make of them.

    >>> import pyarrow as pa
    >>> from sqlglot import parse_one
    >>> meeting(pa.table({"a": [1, None, 3]}), parse_one("NOT a IS NULL AND a > 1.5")).column("a").to_pylist()
    [3]
    >>> meeting(pa.table({"a": [1, -2], "s": ["x", "y"]}), parse_one("a < -1 OR s IN ('x')")).num_rows
    2
    >>> meeting(pa.table({"a": [1]}), parse_one("f(a) > 1")) is None
    True
    """
    import pyarrow as pa

    for part in conjuncts(condition):
        try:
            truth = _truth(rows, part)
        except (ValueError, OverflowError):  # a date that Python does not know, a text that is not UTF-8
            return None
        if truth is None:
            return None
        rows = rows.filter(pa.array([each is True for each in truth], pa.bool_()))
    return rows


Truth = list[bool | None]
"""Of each row whether a condition is true or false; None where it is NULL."""


def _truth(rows: pa.Table, condition: exp.Expr) -> Truth | None:
    """Whether a simple condition is true of each row; None for any other condition."""
    condition = condition.unnest()
    if isinstance(condition, (exp.And, exp.Or)):
        sides = [_truth(rows, side) for side in (condition.this, condition.expression)]
        known = [side for side in sides if side is not None]
        decisive = isinstance(condition, exp.Or)  # one side that is so decides
        return [_both(each, decisive) for each in zip(*known, strict=True)] if len(known) == 2 else None
    if isinstance(condition, exp.Not):
        inner = _truth(rows, condition.this)
        return None if inner is None else [None if each is None else not each for each in inner]
    if isinstance(condition, exp.Is) and isinstance(condition.expression, exp.Null) and is_column(condition.this):
        return [bool(each) for each in rows.column(condition.this.name).is_null().to_pylist()]
    if isinstance(condition, exp.In) and condition.expressions and is_column(condition.this):
        type_ = rows.schema.field(condition.this.name).type
        items = [_constant(item, type_) for item in condition.expressions]
        if None in items:
            return None
        return [None if each is None else each in items for each in rows.column(condition.this.name).to_pylist()]
    compare = COMPARISONS.get(type(condition))
    if compare is None or not is_column(condition.this):
        return None
    value = _constant(condition.expression, rows.schema.field(condition.this.name).type)
    if value is None:
        return None
    return [None if each is None else compare(each, value) for each in rows.column(condition.this.name).to_pylist()]


def _both(sides: Sequence[bool | None], decisive: bool) -> bool | None:
    """AND or OR of two truth values, of which one that is `decisive` decides."""
    if decisive in sides:
        return decisive
    return None if None in sides else not decisive


def _constant(e: exp.Expr, type_: pa.DataType) -> Any:
    """The value of a literal that Spark compares with values of a type as Python does; None for any other one."""
    import pyarrow as pa

    e = e.unnest()
    if pa.types.is_date32(type_):
        is_day = isinstance(e, exp.Cast) and e.to.this == exp.DataType.Type.DATE and e.this.is_string
        return date.fromisoformat(e.this.this) if is_day and _DAY.fullmatch(e.this.this) else None
    if pa.types.is_string(type_):
        return e.this if isinstance(e, exp.Literal) and e.is_string else None
    if not (pa.types.is_integer(type_) or (pa.types.is_decimal(type_) and type_.precision <= 28)):
        return None
    sign, e = (-1, e.this) if isinstance(e, exp.Neg) else (1, e)
    if not isinstance(e, exp.Literal) or e.is_string or not _NUMBER.fullmatch(e.this):
        return None
    return sign * Decimal(e.this)
