"""Bags in Delta tables: creating them, and changing multiplicities in one commit."""

from __future__ import annotations

import re
from collections.abc import Sequence

from deferred.algebra.delta import coarse
from deferred.algebra.plan import COUNT
from deferred.errors import InvariantError
from deferred.spark.engine import Engine, Mark, Temporaries, table
from deferred.sql.dialect import literal, quoted, told_apart

Columns = Sequence[tuple[str, str]]

_NEEDS_MAPPING = re.compile(r"[ ,;{}()\n\t=]")
_FIELD = re.compile(r"`((?:[^`]|``)*)`")


def create(engine: Engine, path: str, columns: Columns, partitioned_by: Sequence[str] = (),
           properties: dict[str, str] | None = None) -> None:
    """An empty Delta table. Names that Parquet does not take get Delta's column mapping; others stay plain."""
    settings = dict(properties or {})
    names = [name for column, type_ in columns for name in (column, *_FIELD.findall(type_))]
    if any(map(_NEEDS_MAPPING.search, names)):
        settings["delta.columnMapping.mode"] = "name"
    listed = ", ".join(f"{quoted(name)} {type_}" for name, type_ in columns)
    partitions = f" PARTITIONED BY ({', '.join(map(quoted, partitioned_by))})" if partitioned_by else ""
    options = ", ".join(f"{literal(k)} = {literal(v)}" for k, v in settings.items())
    engine.write(f"CREATE TABLE {table(path)} ({listed}) USING delta{partitions}"
                 + (f" TBLPROPERTIES ({options})" if options else ""))


def net(query: str, columns: Columns) -> str:
    """A signed query with every row once, its count summed, never zero: the strongly minimal form."""
    outputs, keys = [], []
    for name, type_ in columns:
        keys.extend(told_apart(quoted(name), type_))
        outputs.append(f"ANY_VALUE({quoted(name)}) AS {quoted(name)}" if coarse(type_) else quoted(name))
    total = quoted(COUNT)
    names = ", ".join(quoted(name) for name, _ in columns)
    summed = (f"SELECT {', '.join([*outputs, f'SUM({total}) AS {total}'])} FROM ({query}) AS q "
              f"GROUP BY {', '.join(keys)}")
    return f"SELECT {names}, {total} FROM ({summed}) AS summed WHERE {total} <> 0"


def written_out(query: str, columns: Columns) -> str:
    """A signed query of positive counts as plain rows."""
    names = ", ".join(quoted(name) for name, _ in columns)
    return (f"SELECT {names} FROM ({query}) AS q "
            f"LATERAL VIEW EXPLODE(ARRAY_REPEAT(0, CAST({quoted(COUNT)} AS INT))) r AS `_deferred_copy`")


def identical(columns: Columns, left: str, right: str) -> str:
    """The condition that two rows are the same row, bit by bit where SQL equality is coarser."""
    parts = []
    for name, type_ in columns:
        a, b = f"{left}.{quoted(name)}", f"{right}.{quoted(name)}"
        parts.append(f"{a} <=> {b}")
        if coarse(type_):
            parts.append(f"CAST({a} AS STRING) <=> CAST({b} AS STRING)")
    return " AND ".join(parts)


def apply(engine: Engine, temporaries: Temporaries, path: str, columns: Columns, changes: str, mark: Mark,
          key: Sequence[str] = ()) -> tuple[int, int]:
    """R := (R ∸ ∇R) ⊎ ΔR in one Delta commit, for a netted signed temporary `changes`.

    Without deletions it is an append; with a key one MERGE on it; a bag's touched rows are deleted and the remaining
    number of copies inserted, in one MERGE. Answers how many rows were deleted and inserted.
    """
    count = quoted(COUNT)
    (totals,) = engine.rows(f"SELECT COALESCE(SUM(IF({count} < 0, -{count}, 0)), 0) AS deleted, "
                            f"COALESCE(SUM(IF({count} > 0, {count}, 0)), 0) AS inserted FROM {changes}")
    deleted, inserted = int(totals["deleted"]), int(totals["inserted"])
    if not deleted and not inserted:
        return 0, 0
    names = ", ".join(quoted(name) for name, _ in columns)
    if not deleted:
        rows = written_out(f"SELECT * FROM {changes}", columns)
        engine.commit(f"INSERT INTO {table(path)} ({names}) {rows}", mark)
    elif key:
        engine.commit(_keyed_merge(path, columns, changes, key), mark, kept=True)
    else:
        engine.commit(_bag_merge(engine, temporaries, path, columns, changes), mark, kept=True)
    return deleted, inserted


def _keyed_merge(path: str, columns: Columns, changes: str, key: Sequence[str]) -> str:
    """One MERGE on a key: the new row of each touched key replaces the old one, or nothing does."""
    count = quoted(COUNT)
    names = [quoted(name) for name, _ in columns]
    types = dict(columns)
    keyed = [(k, types[k]) for k in key]
    # A join, not EXISTS: inside a subquery an alias would lose against a column of its name.
    same = " AND ".join(f"gone.{quoted(k)} <=> new.{quoted(k)}" for k in key)
    vanished = (f"SELECT {', '.join(f'gone.{n}' for n in names)}, 'D' AS `_deferred_op` "
                f"FROM (SELECT * FROM {changes} WHERE {count} < 0) AS gone "
                f"LEFT ANTI JOIN (SELECT * FROM {changes} WHERE {count} > 0) AS new ON {same}")
    source = (f"SELECT {', '.join(names)}, 'I' AS `_deferred_op` FROM {changes} WHERE {count} > 0 "
              f"UNION ALL {vanished}")
    on = " AND ".join(f"t.{quoted(k)} <=> s.{quoted(k)}" for k, _ in keyed)
    sets = ", ".join(f"t.{n} = s.{n}" for n in names)
    return (f"MERGE INTO {table(path)} AS t USING ({source}) AS s ON {on} "
            f"WHEN MATCHED AND s.`_deferred_op` = 'D' THEN DELETE WHEN MATCHED THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED AND s.`_deferred_op` = 'I' THEN INSERT ({', '.join(names)}) "
            f"VALUES ({', '.join(f's.{n}' for n in names)})")


def _bag_merge(engine: Engine, temporaries: Temporaries, path: str, columns: Columns, changes: str) -> str:
    """One MERGE on whole rows: a deleted row's copies all go, those that remain come back."""
    count = quoted(COUNT)
    names = ", ".join(quoted(name) for name, _ in columns)
    present = temporaries.keep("present", _present(path, columns, changes))
    missing = engine.rows(f"SELECT COUNT(*) AS n FROM {present} WHERE `_deferred_present` + {count} < 0")[0]["n"]
    if missing:
        raise InvariantError(f"{missing} rows to be deleted are not in {path}: ∇ ⊆ R does not hold, so nothing was "
                             f"applied. Run `rebuild`.")
    left = f"`_deferred_present` + {count}"
    remaining = written_out(f"SELECT {names}, {left} AS {count} FROM {present} WHERE {left} > 0", columns)
    added = written_out(f"SELECT * FROM {changes} WHERE {count} > 0", columns)
    source = (f"SELECT {names}, 'D' AS `_deferred_op` FROM {present} "
              f"UNION ALL SELECT {names}, 'I' AS `_deferred_op` FROM ({remaining}) "
              f"UNION ALL SELECT {names}, 'I' AS `_deferred_op` FROM ({added})")
    listed = ", ".join(f"s.{quoted(name)}" for name, _ in columns)
    return (f"MERGE INTO {table(path)} AS t USING ({source}) AS s "
            f"ON s.`_deferred_op` = 'D' AND {identical(columns, 't', 's')} WHEN MATCHED THEN DELETE "
            f"WHEN NOT MATCHED AND s.`_deferred_op` = 'I' THEN INSERT ({names}) VALUES ({listed})")


def _present(path: str, columns: Columns, changes: str) -> str:
    """How many copies the table holds of each row to be deleted."""
    count = quoted(COUNT)
    shown, keys = [], []
    for name, type_ in columns:
        mine = f"d.{quoted(name)}"
        # Grouping would take 0.0 and −0.0 for one value, and give back either.
        shown.append(f"ANY_VALUE({mine}) AS {quoted(name)}" if coarse(type_) else mine)
        keys.extend(told_apart(mine, type_))
    return (f"SELECT /*+ BROADCAST(d) */ {', '.join(shown)}, ANY_VALUE(d.{count}) AS {count}, "
            f"COUNT(t.`_deferred_one`) AS `_deferred_present` FROM (SELECT * FROM {changes} WHERE {count} < 0) AS d "
            f"LEFT JOIN (SELECT *, 1 AS `_deferred_one` FROM {table(path)}) AS t ON {identical(columns, 'd', 't')} "
            f"GROUP BY {', '.join(keys)}")
