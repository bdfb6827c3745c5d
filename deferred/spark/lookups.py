"""Rows of Delta tables for few keys, read at the driver without Spark; what was read is remembered.

The rounds of a recursion ask for the same values again and again: a path from one start keeps its start, and the paths
of a tree meet above. So all rows with a value of one column are read once, and later rounds find them here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deferred.spark import driver

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import dataset

REMEMBERED_ROWS = 200_000
"""Of each table and column at most this many rows are remembered."""


@dataclass
class Lookup:
    """A Delta table at a version, of which rows are looked up for one operation."""

    files: dataset.Dataset
    current: Callable[[pa.Table], pa.Table] = lambda rows: rows
    """From all rows of some keys to those that count."""
    _known: dict[str, _Known] = field(default_factory=dict)
    _too_many: set[str] = field(default_factory=set)

    def candidates(self, keys: pa.Table, on: Mapping[str, str]) -> pa.Table | None:
        """At least the rows whose columns have together the values of some key, NULL equal to NULL.

        `on` names for each of these columns the one of `keys`. The column with the fewest values that were never asked
        for decides what is read. None where there are too many rows.
        """
        asked = {mine: set(_values(keys, theirs)) for mine, theirs in on.items() if mine not in self._too_many}
        for mine in sorted(asked, key=lambda name: len(asked[name] - self._of(name).values)):
            found = self._remembered(mine, asked[mine])
            if found is not None:
                return found
        return None

    def _of(self, name: str) -> _Known:
        return self._known.setdefault(name, _Known())

    def _remembered(self, name: str, asked: set[Any]) -> pa.Table | None:
        import pyarrow as pa

        known, type_ = self._of(name), self.files.schema.field(name).type
        missing = asked - known.values
        if missing:
            most = REMEMBERED_ROWS - sum(part.num_rows for part in known.parts)
            try:
                read = self.files.head(most + 1, filter=driver.among(name, pa.array(list(missing), type_)))
            except (OSError, pa.ArrowException):  # whatever Arrow does not read: Spark does, or says why not
                read = None
            if read is None or read.num_rows > most:
                self._too_many.add(name)
                return None
            known.values |= missing
            known.parts = [pa.concat_tables([*known.parts, self.current(read)]).combine_chunks()]
        (rows,) = known.parts or [self.current(self.files.schema.empty_table())]
        return rows if asked >= known.values else rows.filter(driver.among(name, pa.array(list(asked), type_)))


@dataclass
class _Known:
    """The values of a column that were asked for, and all rows that have them, as at most one part."""

    values: set[Any] = field(default_factory=set)
    parts: list[pa.Table] = field(default_factory=list)


def _values(rows: pa.Table, name: str) -> list[Any]:
    """The different values of a column; texts as bytes, for those of Spark need not be UTF-8."""
    import pyarrow as pa
    from pyarrow import compute

    values = rows.column(name)
    return list(compute.unique(values.cast(pa.binary()) if pa.types.is_string(values.type) else values).to_pylist())


def newest(rows: pa.Table, names: Sequence[str], keys: Sequence[str], batch: str, gone: str) -> pa.Table:
    """Of each key the row of the newest batch, unless that batch took the key away; as `bags.newest` in SQL."""
    from pyarrow import compute

    whole = compute.ScalarAggregateOptions(skip_nulls=False, min_count=0)
    others = [name for name in (*names, gone) if name not in keys]
    ordered = rows.sort_by(batch).group_by(list(keys), use_threads=False)
    found = ordered.aggregate([(name, "last", whole) for name in others])
    found = found.rename_columns([*keys, *others] if found.column_names[0] in keys else [*others, *keys])
    return found.filter(compute.invert(found.column(gone))).select(list(names))
