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

    Known here are conjunctions of comparisons of whole and decimal numbers with literals, and of IS [NOT] NULL.

    >>> import pyarrow as pa
    >>> from sqlglot import parse_one
    >>> meeting(pa.table({"a": [1, None, 3]}), parse_one("NOT a IS NULL AND a > 1.5")).column("a").to_pylist()
    [3]
    >>> meeting(pa.table({"a": [1]}), parse_one("f(a) > 1")) is None
    True
    """
    import pyarrow as pa

    for part in conjuncts(condition):
        kept = _holds(rows, part)
        if kept is None:
            return None
        rows = rows.filter(pa.array(kept, pa.bool_()))
    return rows


def _holds(rows: pa.Table, condition: exp.Expr) -> list[bool] | None:
    """For which rows a simple condition is true; None for any other one."""
    import pyarrow as pa

    condition = condition.unnest()
    if isinstance(condition, exp.Not):
        of = condition.this.unnest()
        holds = _holds(rows, of) if isinstance(of, exp.Is) else None
        return None if holds is None else [not each for each in holds]
    if isinstance(condition, exp.Is) and isinstance(condition.expression, exp.Null) and is_column(condition.this):
        return [bool(each) for each in rows.column(condition.this.name).is_null().to_pylist()]
    compare = COMPARISONS.get(type(condition))
    if compare is None or not is_column(condition.this) or not isinstance(condition.expression, exp.Literal):
        return None
    type_, literal = rows.schema.field(condition.this.name).type, condition.expression
    if literal.is_string or not _NUMBER.fullmatch(literal.this):
        return None
    if not (pa.types.is_integer(type_) or (pa.types.is_decimal(type_) and type_.precision <= 28)):
        return None
    value = Decimal(literal.this)
    return [each is not None and compare(each, value) for each in rows.column(condition.this.name).to_pylist()]
