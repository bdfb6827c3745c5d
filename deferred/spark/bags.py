"""Bags in Delta tables: creating the tables, and applying changes in one commit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from deferred.algebra.bags import (
    COUNT,
    NOT_CONTAINED,
    changed_rows,
    column,
    insert_into,
    merge_by_key,
    merge_by_row,
    missing,
    multiplicities,
    negative,
    overwrite,
    positive,
    replace_where,
    select,
    totals,
    unmatched,
    written_out,
)
from deferred.algebra.types import Columns, is_padded
from deferred.errors import InvariantError, SparkFailure
from deferred.spark import copy_on_write, local_bags
from deferred.spark.data_skipping import among_values, holding, within_ranges, within_spans
from deferred.spark.engine import Engine, Mark
from deferred.spark.temporaries import Temporaries
from deferred.sql import ddl
from deferred.sql.dialect import delta_table

if TYPE_CHECKING:
    import pyarrow as pa

FEW_BYTES = 8 * 2**20
"""So many bytes of files are few."""

FEW_OF_THEM = 0.25
"""So is this part of a table's."""

_NEEDS_MAPPING = re.compile(r"[ ,;{}()\n\t=]")
_FIELD = re.compile(r"`((?:[^`]|``)*)`")


def create(
    engine: Engine,
    path: str,
    columns: Columns,
    partitioned_by: Sequence[str] = (),
    properties: dict[str, str] | None = None,
) -> None:
    """Create an empty Delta table."""
    if _needs_mapping(columns) or not engine.create_table(path, columns, partitioned_by, properties or {}):
        engine.write(ddl.create_table(delta_table(path), columns, partitioned_by, _mapped(columns, properties)))


def create_filled(
    engine: Engine, path: str, columns: Columns, rows: exp.Query, mark: Mark, properties: dict[str, str] | None = None
) -> None:
    """Create a Delta table with the rows of a query in one commit with a mark; the query has these columns.

    Names that need column mapping, and types of which a query does not tell, need a statement of their own before.
    """
    if _needs_mapping(columns) or any(is_padded(type_) for _, type_ in columns):
        create(engine, path, columns, properties=properties)
        engine.commit(insert_into(delta_table(path), [name for name, _ in columns], rows), mark)
        return
    engine.commit(ddl.create_filled(delta_table(path), columns, rows, properties), mark)


def create_again(engine: Engine, path: str, columns: Columns, mark: Mark) -> None:
    """Create an empty Delta table in the place of whatever table there is, in one commit with a mark."""
    engine.commit(ddl.replace_table(delta_table(path), columns, _mapped(columns)), mark)


def replace(engine: Engine, path: str, columns: Columns, rows: exp.Query, mark: Mark) -> None:
    """Give a Delta table other rows and other columns in one commit with a mark.

    If one of the new names needs column mapping, the table gets that first, by a commit that changes nothing else.
    """
    if _needs_mapping(columns):
        needed = {"delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}
        engine.write(ddl.set_properties(delta_table(path), _mapped(columns, needed)))
    engine.replace(path, rows, mark)


def _mapped(columns: Columns, properties: Mapping[str, str] | None = None) -> dict[str, str]:
    """The properties of a table with these columns: with column mapping only if Parquet does not allow a name."""
    return {**(properties or {}), **({"delta.columnMapping.mode": "name"} if _needs_mapping(columns) else {})}


def _needs_mapping(columns: Columns) -> bool:
    """Whether Parquet does not allow one of the names, also of fields."""
    names = [name for column, type_ in columns for name in (column, *_FIELD.findall(type_))]
    return any(map(_NEEDS_MAPPING.search, names))


def restore(engine: Engine, path: str, version: int, mark: Mark) -> None:
    """Restore a Delta table to an earlier version, in one commit with a mark."""
    engine.commit(ddl.command("RESTORE TABLE", delta_table(path), f"TO VERSION AS OF {version}"), mark)


def count_changes(engine: Engine, temporaries: Temporaries, changes: exp.Table) -> tuple[int, int]:
    """Returns the number of rows that a signed bag, a temporary result, deletes and inserts."""
    rows = temporaries.local(changes)
    if rows is not None:
        counts = rows.column(COUNT).to_pylist()
        return -sum(n for n in counts if n < 0), sum(n for n in counts if n > 0)
    (row,) = engine.rows(totals(changes))
    return int(row["deleted"]), int(row["inserted"])


def apply(
    engine: Engine,
    temporaries: Temporaries,
    path: str,
    columns: Columns,
    changes: exp.Table,
    mark: Mark,
    key: Sequence[str] = (),
    files: Sequence[Mapping[str, Any]] = (),
) -> tuple[int, int]:
    """R := (R ∸ ∇R) ⊎ ΔR in one Delta commit, for `changes`, a temporary result with a netted signed bag.

    Without deletions it is an append. A small change replaces the rows among which it is, found by literal values, if
    by the statistics of the table's `files` these are few; a large one is a MERGE, on the key or on whole rows, of the
    files that may hold deleted rows. Returns the number of rows deleted and inserted.
    """
    deleted, inserted = count_changes(engine, temporaries, changes)
    if not deleted and not inserted:
        return 0, 0
    target = delta_table(path)
    names = [name for name, _ in columns]
    rows = temporaries.local(changes)
    touched = among_values(rows, key or names) if rows is not None and deleted else None
    if touched is not None and (key or _touch_few_files(rows, names, files)):
        try:
            engine.commit(replace_where(target, names, touched, changed_rows(target, columns, touched, changes)), mark)
        except SparkFailure as error:
            if NOT_CONTAINED not in f"{error} {error.__cause__}":
                raise
            raise _not_contained("Some", path) from error
    elif not deleted:
        engine.commit(insert_into(target, names, written_out(changes, names)), mark)
    elif key:
        new, old = positive(changes, names), negative(changes, names)
        gone = unmatched(old, key, new, key)
        near = _near(temporaries, changes, key)
        engine.commit(merge_by_key(target, names, key, names, new, gone, near), mark, stable_source=True)
    else:
        near = _near(temporaries, changes, names) if rows is not None else None
        present = temporaries.compute("present", multiplicities(target, columns, changes, near))
        _check_present(engine, path, present)
        engine.commit(merge_by_row(target, columns, changes, present, near), mark, stable_source=True)
    return deleted, inserted


def _touch_few_files(rows: pa.Table, names: Sequence[str], files: Sequence[Mapping[str, Any]]) -> bool:
    """Whether changed rows can only be in few of the files of a table."""
    size = sum(file["size_bytes"] for file in holding(files, rows, names))
    return size <= max(FEW_BYTES, FEW_OF_THEM * sum(file["size_bytes"] for file in files))


def _near(temporaries: Temporaries, changes: exp.Table, columns: Sequence[str]) -> exp.Expr | None:
    """A condition on some columns that holds for every changed row; None where none is known."""
    rows = temporaries.local(changes)
    if rows is not None:
        found = [within_ranges(rows.column(name), column(name)) for name in columns]
    else:
        covered = [(name, temporaries.spans(changes, name)) for name in columns]
        found = [within_spans(spans, column(name)) for name, spans in covered if spans is not None]
    parts = [exp.Paren(this=part) for part in found if part is not None]
    return exp.and_(*parts, copy=False) if parts else None


def apply_at_driver(
    engine: Engine,
    path: str,
    columns: Columns,
    rows: pa.Table,
    mark: Mark,
    key: Sequence[str] = (),
    is_netted: bool = False,
) -> tuple[int, int] | None:
    """The same for a signed bag at the driver, netted or not, without Spark; None where Spark must do it.

    With deletions, the files that hold the deleted rows are rewritten; a key helps to find them. If the table has
    changed in between, nothing is done here.
    """
    names = [name for name, _ in columns]
    if min(rows.column(COUNT).to_pylist(), default=1) > 0:
        new = local_bags.repeated(rows.select(names), rows.column(COUNT).to_pylist())
        return (0, new.num_rows) if not new.num_rows or engine.append_rows(path, new, mark) else None
    try:
        files = copy_on_write.rewritten(path, columns, rows, key, is_netted)
    except copy_on_write.NotContained:
        raise _not_contained("Some", path) from None
    if files is None:
        return None
    changed = files.deleted, files.inserted
    return changed if not any(changed) or engine.rewrite_rows(path, files, mark) else None


def replace_at_driver(
    engine: Engine, path: str, source: str, files: Sequence[Mapping[str, Any]], extra: str, mark: Mark
) -> bool:
    """Put files of another table, as its log names them, in the place of all rows; False where Spark must do it.

    `extra` is the column that only the other table has.
    """
    found = copy_on_write.replaced(path, source, files, extra)
    return found is not None and engine.rewrite_rows(path, found, mark)


def overwrite_with(
    engine: Engine, temporaries: Temporaries, path: str, columns: Columns, rows: exp.Table, mark: Mark
) -> exp.Table:
    """R := the rows of a temporary result, in one commit with a mark. Returns the table to read them from."""
    result, local = temporaries.ready(rows), temporaries.local(rows)
    found = None if local is None else copy_on_write.overwritten(path, columns, local)
    if found is None or not engine.rewrite_rows(path, found, mark):
        names = [name for name, _ in columns]
        engine.commit(overwrite(delta_table(path), names, select(map(column, names), result.copy())), mark)
    return result


def _check_present(engine: Engine, path: str, present: exp.Table) -> None:
    """Refuse to delete rows that are not there: a MERGE would ignore them silently."""
    rows = int(engine.rows(missing(present))[0]["n"])
    if rows:
        raise _not_contained(str(rows), path)


def _not_contained(rows: str, path: str) -> InvariantError:
    return InvariantError(
        f"{rows} rows to be deleted are not in {path}: ∇ ⊆ R does not hold, so nothing was applied. "
        f"Run `rebuild` for the view."
    )
