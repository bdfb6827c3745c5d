"""Deleting and inserting rows of a Delta table on a local disk without Spark: the files that hold them are rewritten.

The rows to delete are looked for by Arrow in the files whose statistics allow them, and compared whole, bit by bit.
Each file that holds one is written again without it; new rows go into the smallest of these files, so that many small
changes do not leave many small files. All of it is one commit of added and removed files.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deferred import failpoints
from deferred.algebra.bags import COUNT
from deferred.algebra.types import Columns
from deferred.spark.data_skipping import TELLING, holding
from deferred.spark.driver import READ_BYTES, committed, exact_type, has_feed, is_plain, writable
from deferred.spark.local_bags import summed

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from deltalake import DeltaTable

REWRITTEN_BYTES = 128 * 2**20
"""More bytes of files are rewritten by Spark, which works on all cores of a cluster."""

INSERTED_ROWS = 2_000_000
"""More rows, each as often as its count says, are written by Spark."""

LONGEST = 32
"""Longer texts are left out of the statistics of a file."""

_ROW = "_deferred_row"


class NotContained(Exception):
    """Rows to be deleted are not in the table."""


@dataclass(frozen=True)
class Rewriting:
    """Files that are written and are to take the place of others in the version of a table for which they were made."""

    table: DeltaTable
    added: Sequence[Any]
    removed: Sequence[Any]
    deleted: int
    inserted: int

    def commit(self, application: str, version: int, metadata: str) -> bool:
        """One commit with a mark; False where it could not be made, or the number has one already."""

        def write(properties: Any) -> None:
            actions, schema = [*self.added, *self.removed], self.table.schema()
            self.table.create_write_transaction(actions, "append", schema, commit_properties=properties)

        return committed(self.table, write, application, version, metadata)


def rewritten(
    path: str, columns: Columns, changes: pa.Table, key: Sequence[str] = (), is_netted: bool = False
) -> Rewriting | None:
    """(R ∸ ∇R) ⊎ ΔR for a signed bag as files that are not committed yet; None where Spark must do it.

    Rows are looked for by the columns of `key`, where there is one.
    """
    import pyarrow as pa

    table = _opened(path, columns)
    if table is None:
        return None
    try:
        if not _is_comparable(changes):
            return None
        names = table.schema.names
        change = _as_bits(changes.select([*names, COUNT]).cast(table.schema.append(pa.field(COUNT, pa.int64()))))
        return table.changed(change if is_netted else summed(change), key)
    except (OSError, ValueError, OverflowError, pa.ArrowException):  # whatever is not for Arrow: Spark does it
        return None


def overwritten(path: str, columns: Columns, rows: pa.Table) -> Rewriting | None:
    """Some rows in the place of all rows, as a file that is not committed yet; None where Spark must do it."""
    import pyarrow as pa

    table = _opened(path, columns)
    if table is None:
        return None
    try:
        old = table.files()
        added = [table.written(rows.select(table.schema.names).cast(table.schema))] if rows.num_rows else []
    except (OSError, ValueError, OverflowError, pa.ArrowException):
        return None
    return Rewriting(
        table.table, added, list(map(_removal, old)), sum(file["num_records"] or 0 for file in old), rows.num_rows
    )


def _opened(path: str, columns: Columns) -> _Table | None:
    """A table with these columns whose files Arrow may write; None where Spark must do it."""
    import pyarrow as pa

    table = writable(path)
    types = {name: exact_type(type_) for name, type_ in columns}
    if table is None or None in types.values() or has_feed(table) or table.metadata().partition_columns:
        return None
    names = [field.name for field in table.schema().fields]
    if set(names) != types.keys():
        return None
    return _Table(table, path, pa.schema([(name, types[name]) for name in names]))


def replaced(path: str, source: str, files: Sequence[Mapping[str, Any]], extra: str) -> Rewriting | None:
    """Files of another table in the place of all files of this one, not committed yet; None where Spark must do it.

    They are its own from then on: links to the same bytes, which no writer of Delta ever changes. Of their column
    `extra`, a number, this table has none, and its readers see none.
    """
    import pyarrow as pa

    table = writable(path)
    if table is None or writable(source) is None or table.metadata().partition_columns:
        return None
    counts = [json.loads(file.get("stats") or "{}").get("numRecords") for file in files]
    if None in counts or any(file.get("deletionVector") for file in files):
        return None
    failpoints.reached(f"links of {len(files)} files")
    try:
        old = pa.table(table.get_add_actions(flatten=True)).select(["path", "size_bytes", "num_records"]).to_pylist()
        added = [_linked(path, source, file, extra) for file in files]
    except (OSError, pa.ArrowException):  # also where files cannot have two names
        return None
    return Rewriting(table, added, list(map(_removal, old)), sum(file["num_records"] or 0 for file in old), sum(counts))


def _linked(path: str, source: str, file: Mapping[str, Any], extra: str) -> Any:
    from deltalake.transaction import AddAction

    name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    os.link(f"{source}/{unquote(file['path'])}", f"{path}/{name}")
    os.utime(f"{path}/{name}")  # VACUUM leaves new files alone, which may be committed the next moment
    return AddAction(name, file["size"], {}, int(time.time() * 1000), True, _without(file["stats"], extra))


def _without(statistics_: str, column: str) -> str:
    """The statistics of a file without a column of numbers.

    >>> _without('{"minValues":{"a":2,"n":1},"maxValues":{"a":"\\\\"n\\\\":1","n":1},"nullCount":{"n":0}}', "n")
    '{"minValues":{"a":2},"maxValues":{"a":"\\\\"n\\\\":1"},"nullCount":{}}'
    """
    said = rf'"{re.escape(column)}":-?\d+'
    return re.sub(f"{said},|,?{said}", "", statistics_)


@dataclass(frozen=True)
class _Table:
    """A table whose files are read and written by Arrow."""

    table: DeltaTable
    path: str
    schema: pa.Schema

    def changed(self, change: pa.Table, key: Sequence[str]) -> Rewriting | None:
        """The files after a netted signed bag, whose floating-point numbers are given as their bits."""
        import numpy as np
        import pyarrow as pa
        from pyarrow import compute

        counts = change.column(COUNT)
        gone = change.filter(compute.less(counts, 0))
        new = change.filter(compute.greater(counts, 0))
        times = new.column(COUNT).to_numpy()
        if times.sum() > INSERTED_ROWS:
            return None
        inserted = _as_values(new.take(pa.array(np.repeat(np.arange(new.num_rows), times))), self.schema)
        files = self._files_with(gone, key) if gone.num_rows else []
        if files is None:
            return None
        rows = [self._found(file, gone, key) for file in files]
        touched = list(zip(files, _positions(rows, gone), strict=True))
        touched = [(file, positions) for file, positions in touched if len(positions)]
        if sum(file["size_bytes"] for file, _ in touched) > REWRITTEN_BYTES:
            return None
        touched.sort(key=lambda each: each[0]["size_bytes"], reverse=True)
        kept = (self._without(file, positions) for file, positions in touched[:-1])
        last = [self._without(*touched[-1]), inserted] if touched else [inserted]
        added = [self.written(rows) for rows in chain(kept, [pa.concat_tables(last)]) if rows.num_rows]
        removed = [_removal(file) for file, _ in touched]
        return Rewriting(self.table, added, removed, -sum(gone.column(COUNT).to_pylist()), inserted.num_rows)

    def files(self) -> list[dict[str, Any]]:
        """All files of the table, with their statistics."""
        import pyarrow as pa

        return list(pa.table(self.table.get_add_actions(flatten=True)).to_pylist())

    def _files_with(self, gone: pa.Table, key: Sequence[str]) -> list[Mapping[str, Any]] | None:
        """The files that may hold rows to be deleted, by their statistics; None where that is too much to read."""
        import pyarrow as pa

        values = [field.name for field in self.schema if not pa.types.is_floating(field.type)]
        files = holding(self.files(), gone, [name for name in key or values if name in values])
        return files if sum(file["size_bytes"] for file in files) <= READ_BYTES else None

    def _found(self, file: Mapping[str, Any], gone: pa.Table, key: Sequence[str]) -> pa.Table:
        """The rows of a file, with their positions, that agree in some columns with rows to be deleted."""
        import numpy as np
        import pyarrow as pa
        from pyarrow import compute

        asked = {name: compute.unique(gone.column(name)) for name in key or gone.column_names if name != COUNT}
        telling = sorted(asked, key=lambda name: -len(asked[name]))[:TELLING]
        known = _as_bits(self._read(file, telling))
        # A NULL is looked for as any other value.
        agree = (compute.is_in(known.column(name), value_set=asked[name]) for name in telling)
        positions = np.flatnonzero(reduce(compute.and_, agree).to_numpy())
        rows = self._read(file, self.schema.names) if len(positions) else self.schema.empty_table()
        return _as_bits(rows.take(pa.array(positions))).append_column(_ROW, pa.array(positions, pa.int64()))

    def _read(self, file: Mapping[str, Any], names: Sequence[str]) -> pa.Table:
        import pyarrow as pa
        from pyarrow import parquet

        with parquet.ParquetFile(f"{self.path}/{file['path']}", coerce_int96_timestamp_unit="us") as opened:
            if any(b"legacy" in entry for entry in opened.schema_arrow.metadata or {}):
                raise ValueError("an old calendar of dates and times")
            present = set(opened.schema_arrow.names)
            found = opened.read([name for name in names if name in present])
        columns = [
            found.column(name).cast(self.schema.field(name).type)
            if name in present
            else pa.nulls(found.num_rows, self.schema.field(name).type)
            for name in names
        ]
        return pa.table(columns, names=list(names))

    def _without(self, file: Mapping[str, Any], positions: np.ndarray[Any, Any]) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        rows = self._read(file, self.schema.names)
        kept = np.ones(rows.num_rows, bool)
        kept[positions] = False
        return rows.filter(pa.array(kept))

    def written(self, rows: pa.Table) -> Any:
        """A new file with some rows, to be added by a commit."""
        from deltalake.transaction import AddAction
        from pyarrow import parquet

        name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
        target = f"{self.path}/{name}"
        failpoints.reached("data file")
        # Arrow leaves NaN out of the extremes of a row group, too.
        told = [name for name in rows.column_names if not _has_nan(rows.column(name))]
        parquet.write_table(
            rows, target, compression="snappy", store_decimal_as_integer=True, write_statistics=told or False
        )
        return AddAction(name, os.path.getsize(target), {}, int(time.time() * 1000), True, statistics(rows))


def _removal(file: Mapping[str, Any]) -> Any:
    from deltalake.transaction import RemoveAction

    return RemoveAction(file["path"], True, int(time.time() * 1000), size=file["size_bytes"], partition_values={})


def _positions(found: Sequence[pa.Table], gone: pa.Table) -> Iterator[np.ndarray[Any, Any]]:
    """For each of some files, of whose rows those are given that may have to go, the positions of those that do."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import compute

    if not found:
        if gone.num_rows:
            raise NotContained
        return
    names = [name for name in gone.column_names if name != COUNT]
    held = pa.concat_tables(found)
    ids = pa.array(np.arange(held.num_rows))
    both = pa.concat_tables(
        [
            held.select(names).append_column(_ROW, ids).append_column(COUNT, pa.repeat(0, held.num_rows)),
            gone.select(names)
            .append_column(_ROW, pa.nulls(gone.num_rows, pa.int64()))
            .append_column(COUNT, compute.negate(gone.column(COUNT))),
        ],
        promote_options="default",
    )
    groups = both.group_by(names).aggregate([(COUNT, "sum"), (_ROW, "list"), (_ROW, "count")])
    groups = groups.filter(compute.greater(groups.column(f"{COUNT}_sum"), 0))
    wanted = groups.column(f"{COUNT}_sum").to_numpy()
    if (groups.column(f"{_ROW}_count").to_numpy() < wanted).any():
        raise NotContained
    listed = groups.column(f"{_ROW}_list").combine_chunks()
    members, group = listed.flatten(), compute.list_parent_indices(listed).to_numpy()
    there = members.is_valid().to_numpy(zero_copy_only=False)
    members, group = members.drop_null().to_numpy(), group[there]
    first = np.searchsorted(group, np.arange(len(wanted)))
    chosen = np.sort(members[np.arange(len(members)) - first[group] < wanted[group]])
    positions = held.column(_ROW).to_numpy()
    start = 0
    for rows in found:
        within = chosen[(chosen >= start) & (chosen < start + rows.num_rows)]
        yield positions[within]
        start += rows.num_rows


def _is_comparable(changes: pa.Table) -> bool:
    """Whether the rows to be deleted are compared by their bits: NaN has several."""
    from pyarrow import compute

    gone = changes.filter(compute.less(changes.column(COUNT), 0))
    return not any(map(_has_nan, gone.columns))


def _has_nan(column: pa.ChunkedArray) -> bool:
    import pyarrow as pa
    from pyarrow import compute

    return pa.types.is_floating(column.type) and bool(compute.any(compute.is_nan(column)).as_py())


def _as_bits(rows: pa.Table) -> pa.Table:
    """The same rows with the bits of floating-point numbers, by which Arrow groups and finds them."""
    return _viewed(rows, {"float": "int32", "double": "int64"})


def _as_values(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    columns = [rows.column(field.name) for field in schema]
    values = [
        pa.chunked_array([chunk.view(field.type) for chunk in column.chunks], field.type)
        if column.type != field.type
        else column
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.table(values, schema=schema)


def _viewed(rows: pa.Table, types: dict[str, str]) -> pa.Table:
    import pyarrow as pa

    columns = []
    for column in rows.columns:
        other = types.get(str(column.type))
        if other is not None:
            wanted = pa.type_for_alias(other)
            column = pa.chunked_array([chunk.view(wanted) for chunk in column.chunks], wanted)
        columns.append(column)
    return pa.table(columns, names=rows.column_names)


def statistics(rows: pa.Table) -> str:
    """What Delta keeps of a file: how many rows it has, and of each column its NULLs and its extremes.

    >>> import pyarrow as pa
    >>> statistics(pa.table({"a": [3, None, 1]}))
    '{"numRecords": 3, "minValues": {"a": 1}, "maxValues": {"a": 3}, "nullCount": {"a": 1}}'
    """
    from pyarrow import compute

    least: dict[str, str] = {}
    greatest: dict[str, str] = {}
    nulls = {}
    for name in rows.column_names:
        column = rows.column(name)
        nulls[name] = column.null_count
        if not _has_extremes(column):
            continue
        try:
            low, high = compute.min_max(column).as_py().values()
            begin, end = _written_value(low, False), _written_value(high, True)
        except (ValueError, OverflowError):  # a date that Python does not know, a text that is not UTF-8
            continue
        if begin is not None and end is not None:
            least[name], greatest[name] = begin, end
    parts = [f'"{part}": {_object(values)}' for part, values in (("minValues", least), ("maxValues", greatest))]
    return f'{{"numRecords": {rows.num_rows}, {", ".join(parts)}, "nullCount": {json.dumps(nulls)}}}'


def _object(values: dict[str, str]) -> str:
    return "{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in values.items()) + "}"


def _has_extremes(column: pa.ChunkedArray) -> bool:
    """Whether the extremes of a column are those that Spark would compare with; it takes NaN for the largest number."""
    import pyarrow as pa

    if pa.types.is_floating(column.type):
        return not _has_nan(column)
    return is_plain(column.type) or pa.types.is_timestamp(column.type)


def _written_value(value: Any, is_greatest: bool) -> str | None:
    """A value as JSON, exactly; a time is rounded to milliseconds, away from the others. None for what stays out."""
    if value is None or isinstance(value, bool) or (isinstance(value, str) and len(value) > LONGEST):
        return None
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        below = value.microsecond % 1000
        value += timedelta(microseconds=1000 - below if is_greatest and below else -below)
        moment = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return json.dumps(moment if value.tzinfo is None else f"{moment}Z")
    if isinstance(value, date):
        return json.dumps(value.isoformat())
    return json.dumps(value, allow_nan=False)
